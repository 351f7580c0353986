"""Automata out of networks: the automaton that a trained network computes, and the self-modifying one of an SRWM."""
