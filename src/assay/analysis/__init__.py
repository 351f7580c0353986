"""Analysis turns records into numbers: cells, chosen settings, judged findings. It renders nothing."""
