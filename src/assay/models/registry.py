"""The registries of mixers and of named models. A model is a mixer, a recipe, and its lines here."""

from __future__ import annotations

from typing import Any

from assay.registry import Entry, Registry

PREFIXES = ("mixer", "fla", "hf")  # of names whose descriptions are in `foreign`
IRIE, SEPARATIONS = "Irie 2023", "Bhattamishra 2024"

MIXERS = Registry(
    "mixer",
    "assay.models",
    {
        "attention": Entry("attention:Attention", "softmax attention"),
        "linear-attention": Entry("linear_attention:LinearAttention", "additive fast weights"),
        "delta-rule": Entry("delta_rule:DeltaRule", "fast weights with error correction"),
        "recurrent-delta": Entry("recurrent_delta:RecurrentDelta", "the delta rule with feedback"),
        "srwm": Entry("srwm:Srwm", "a weight matrix that modifies itself"),
        "elman": Entry("rnn:Elman", "the plain recurrent network"),
        "gru": Entry("rnn:Gru", "the gated recurrent unit"),
        "lstm": Entry("rnn:Lstm", "long short-term memory"),
        "elementwise-lstm": Entry("elementwise_lstm:ElementwiseLstm", "an LSTM with element-wise recurrence"),
        "retention": Entry("retention:Retention", "linear attention with decay"),
        "diagonal-ssm": Entry("diagonal:DiagonalSsm", "a diagonal state-space model"),
        "selective-ssm": Entry("mamba:SelectiveSsm", "a selective state-space model"),
    },
)

MODELS = Registry(
    "model",
    "assay.models",
    {
        "transformer": Entry("zoo:transformer", "softmax attention; four position encodings", IRIE),
        "linear-transformer": Entry("zoo:linear_transformer", "additive fast weights", IRIE),
        "delta-net": Entry("zoo:delta_net", "delta rule, beta in (0, 1)", IRIE),
        "recurrent-delta": Entry("zoo:recurrent_delta", "delta rule with feedback", IRIE),
        "srwm": Entry("zoo:srwm", "self-referential weight matrix", IRIE),
        "lstm": Entry("zoo:lstm", "long short-term memory", IRIE),
        "e-lstm": Entry("zoo:elementwise_lstm", "LSTM with element-wise recurrence", IRIE),
        "elman": Entry("zoo:elman", "Elman RNN, tanh or relu", IRIE),
        "gru": Entry("zoo:gru", "gated recurrent unit", IRIE),
        "retnet": Entry("zoo:retnet", "retention: linear attention with decay", SEPARATIONS),
        "dss": Entry("zoo:dss", "DSS/S4D: diagonal state-space model", SEPARATIONS),
        "mamba": Entry("zoo:mamba", "selective state-space model", SEPARATIONS),
        "delta-net-signed": Entry(
            "zoo:delta_net_signed", "delta rule, beta in (0, 2), signed unit keys", "Grazzi 2024"
        ),
        "delta-product": Entry("zoo:delta_product", "several delta steps per token", "Siems 2025"),
        "hybrid": Entry("zoo:hybrid", "any mixers in any order", "this project"),
    },
)


def read_mixer(data: Any) -> Any:
    """A mixer from its plain data, or from its name alone."""
    from assay.models.mixer import Mixer

    if isinstance(data, str):
        data = {"kind": data}
    return MIXERS.load_class(str(data.get("kind")), Mixer)(**data) if isinstance(data, dict) else data
