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
        "attention": Entry("attention:Attention", "attention by softmax or another weighting"),
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
        "gated-delta": Entry("gated_delta:GatedDelta", "the delta rule with a decay per head"),
        "channel-delta": Entry("gated_delta:ChannelDelta", "the delta rule with a decay per key"),
        "rwkv-7": Entry("rwkv7:Rwkv7", "a generalised delta rule with decay"),
        "mamba-2": Entry("mamba2:Mamba2", "a state-space model with a decay per head"),
        "gated-linear-attention": Entry("gated_linear:GatedLinearAttention", "linear attention with a decay per key"),
        "hgrn-2": Entry("gated_linear:Hgrn2", "a forget gate whose complement is the key"),
        "mlstm": Entry("mlstm:Mlstm", "linear attention with exponential gates"),
        "slstm": Entry("slstm:Slstm", "an LSTM with exponential gates"),
        "m2rnn": Entry("m2rnn:M2rnn", "a recurrent network with a matrix as its state"),
        "pd-ssm": Entry("pd_ssm:PdSsm", "a state-space model with one-hot columns times a diagonal"),
        "mamba-3": Entry("mamba3:Mamba3", "a selective state-space model with rotations"),
        "forgetting-attention": Entry("forgetting_attention:ForgettingAttention", "softmax attention, forget gates"),
        "stick-breaking": Entry("stick_breaking:StickBreaking", "stick-breaking instead of softmax attention"),
        "path-attention": Entry("path_attention:PathAttention", "softmax attention, products of reflections"),
    },
)

MODELS = Registry(
    "model",
    "assay.models",
    {
        "transformer": Entry("zoo:transformer", "softmax attention; five position encodings", IRIE),
        "linear-transformer": Entry("zoo:linear_transformer", "linear attention (additive fast weights)", IRIE),
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
        "gated-delta-net": Entry("linear_zoo:gated_delta_net", "delta rule with a decay per head", "Yang 2024"),
        "gated-delta-product": Entry("linear_zoo:gated_delta_product", "several delta steps, one decay", "Siems 2025"),
        "kda": Entry("linear_zoo:kimi_delta_attention", "delta rule with a decay per key", "Kimi 2025"),
        "gated-delta-net-2": Entry(
            "linear_zoo:gated_delta_net_2", "delta rule, erase and write gates", "arXiv 2605.22791"
        ),
        "rwkv-7": Entry("linear_zoo:rwkv_7", "generalised delta rule with decay", "Peng 2025"),
        "mamba-2": Entry("linear_zoo:mamba_2", "state-space model with a decay per head", "Dao 2024"),
        "gla": Entry("linear_zoo:gla", "linear attention with a decay per key", "Yang 2023"),
        "hgrn-2": Entry("linear_zoo:hgrn_2", "linear attention with tied key and decay", "Qin 2024"),
        "mlstm": Entry("linear_zoo:mlstm", "matrix LSTM of xLSTM", "Beck 2024"),
        "slstm": Entry("recent_zoo:slstm", "LSTM with exponential gates, the recurrent part of xLSTM", "Beck 2024"),
        "mamba-3": Entry("recent_zoo:mamba_3", "selective state-space model with rotations", "Lahoti 2026"),
        "pd-ssm": Entry("recent_zoo:pd_ssm", "state-space model: one-hot matrix times diagonal", "Terzic 2025"),
        "m2rnn": Entry("recent_zoo:m2rnn", "recurrent network with a matrix as its state", "Mishra 2026"),
        "forgetting-transformer": Entry("recent_zoo:forgetting_transformer", "attention with forget gates", "Lin 2025"),
        "stick-breaking": Entry("recent_zoo:stick_breaking", "stick-breaking instead of softmax attention", "Tan 2025"),
        "path": Entry("recent_zoo:path", "PaTH: softmax attention, reflections as positions", "Yang 2025"),
        "hybrid": Entry("zoo:hybrid", "any mixers in any order", "this project"),
    },
)


def read_mixer(data: Any) -> Any:
    """A mixer from its plain data, or from its name alone."""
    from assay.models.mixer import Mixer

    if isinstance(data, str):
        data = {"kind": data}
    return MIXERS.load_class(str(data.get("kind")), Mixer)(**data) if isinstance(data, dict) else data
