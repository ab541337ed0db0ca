"""From a name or a path to a ``ModelSpec``: find the file, read it with care, hand it to its family's reader."""

import difflib
import json
from importlib.resources import files
from pathlib import Path

from roofline.errors import InputError
from roofline.models.families import ALIASES, ENCODER_DECODERS, ENCODERS, FAMILIES, NESTED
from roofline.models.fields import Fields, shown
from roofline.models.spec import ModelSpec, compress

CONFIG_NAME = "config.json"
MAX_FILE_BYTES = 16 * 2**20
CONTEXT_NAMES = ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len", "model_max_length")
SHIPPED_KEY = "_roofline"  # of a shipped file: where its facts are from


def shipped_models() -> tuple[str, ...]:
    """Names of the models whose facts come with the package."""
    folder = files("roofline.models") / "data"
    return tuple(sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json")))


def load_model(name_or_path: str | Path) -> ModelSpec:
    """Read a model: a shipped name (``llama-3-8b``), a ``config.json`` or a folder that holds one. Never the network.

    A shipped name wins over a folder of that name here; ``./gpt2`` means the folder.

    Raises ``InputError``, one line that names the file and the field, when the file is broken, contradicts itself, or describes
    something other than a decoder-only model of a known family.
    """
    path = Path(name_or_path)
    text = str(name_or_path)
    if not text.strip():
        raise InputError("--model: expected a name, a config.json or its folder, got nothing")
    if isinstance(name_or_path, str) and text.lower() in shipped_models():
        resource = files("roofline.models") / "data" / f"{text.lower()}.json"
        return read_config(_parse(resource.read_bytes(), text), text.lower(), text.lower())
    try:
        file = path / CONFIG_NAME if path.is_dir() else path
        if not file.is_file():
            raise InputError(_not_found(text, file))
        size = file.stat().st_size
        if size > MAX_FILE_BYTES:
            raise InputError(f"{shown(str(file))}: {size} bytes is too large for a model configuration")
        content = file.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        raise InputError(f"--model {shown(text)}: cannot be read ({type(error).__name__})") from None
    return read_config(_parse(content, _label(file)), _label(file), text)


def read_config(data: object, where: str, name: str) -> ModelSpec:
    """Read a parsed ``config.json``; ``where`` names it in messages, ``name`` in results."""
    if not isinstance(data, dict):
        raise InputError(f"{where}: expected a JSON object, got {shown(data)}")
    source = data.get(SHIPPED_KEY)
    data, model_type, where, notes = _language_model(data, where)
    reader = FAMILIES[ALIASES.get(model_type, model_type)]
    fields = Fields(data, where, reader.owner)
    body = reader.read(fields)
    if data.get("quantization_config") is not None:
        notes.append("quantization_config is not applied: the weight dtype is an option")
    if data.get("num_nextn_predict_layers") not in (None, 0):
        notes.append("multi-token prediction layers are not modelled")
    if data.get("dual_chunk_attention_config") is not None:
        notes.append("dual_chunk_attention_config is not modelled: attention is counted as the other fields give it")
    return ModelSpec(
        name=name,
        model_type=model_type,
        hidden_size=body.hidden,
        vocab_size=body.vocab,
        runs=compress(body.layers),
        tied_embeddings=body.tied,
        vectors=body.vectors,
        extra=body.extra,
        extra_embeddings=body.extra_embeddings,
        embedding_size=body.hidden if body.embedding is None else body.embedding,
        inferred=tuple(fields.inferred),
        notes=tuple(notes),
        source=source if isinstance(source, str) else None,
        context_tokens=_context(data),
    )


def _language_model(data: dict[str, object], where: str) -> tuple[dict[str, object], str, str, list[str]]:
    """The object that describes the language model, its type, its name in messages, and what is left out."""
    model_type = _model_type(data, where)
    notes: list[str] = []
    nested = data.get("text_config")
    if model_type in NESTED and nested is not None:
        if not isinstance(nested, dict):
            raise InputError(f"{where}: text_config: expected an object, got {shown(nested)}")
        notes.append("only the language model is modelled: no vision or audio tower")
        inner_type = NESTED[model_type]
        if nested.get("model_type") is not None:
            inner_type = _model_type(nested, f"{where}: text_config")
        if "tie_word_embeddings" in data and "tie_word_embeddings" not in nested:
            nested = {**nested, "tie_word_embeddings": data["tie_word_embeddings"]}
        data, model_type, where = nested, inner_type, f"{where}: text_config"
    elif "vision_config" in data or "audio_config" in data:
        notes.append("only the language model is modelled: no vision or audio tower")
    if model_type not in FAMILIES and model_type not in ALIASES:
        close = difflib.get_close_matches(model_type, (*FAMILIES, *ALIASES), n=1)
        hint = f"; did you mean {close[0]}?" if close else f"; known are {', '.join(FAMILIES)}"
        raise InputError(f"{where}: unknown model_type {shown(model_type)}{hint}")
    return data, model_type, where, notes


def _context(data: dict[str, object]) -> int | None:
    """Longest sequence by the first field that says so; nothing is computed from it, so nothing is inferred or refused."""
    for name in CONTEXT_NAMES:
        value = data.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _model_type(data: dict[str, object], where: str) -> str:
    model_type = data.get("model_type")
    if model_type is None:
        raise InputError(f"{where}: no model_type, which says how the other fields are to be read")
    if not isinstance(model_type, str):
        raise InputError(f"{where}: model_type: expected a text, got {shown(model_type)}")
    if model_type in ENCODERS:
        raise InputError(f"{where}: {model_type} is an encoder; only decoder-only language models are modelled")
    if model_type in ENCODER_DECODERS or data.get("is_encoder_decoder") is True:
        raise InputError(f"{where}: {shown(model_type)} is an encoder-decoder; only decoder-only language models are modelled")
    return model_type


def _parse(content: bytes, where: str) -> object:
    try:
        return json.loads(content.decode("utf-8-sig"), object_pairs_hook=lambda pairs: _unique(pairs, where))
    except UnicodeDecodeError:
        raise InputError(f"{where}: not a text file in UTF-8") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise InputError(f"{where}: not a model configuration: objects nested too deep") from None
    except ValueError:  # a whole number of thousands of digits
        raise InputError(f"{where}: a number in it is too large") from None


def _unique(pairs: list[tuple[str, object]], where: str) -> dict[str, object]:
    data: dict[str, object] = {}
    for key, value in pairs:
        if key in data and data[key] != value:
            raise InputError(f"{where}: the field {shown(key)} is given twice, with different values")
        data[key] = value
    return data


def _label(file: Path) -> str:
    """A path as messages show it: on one line whatever is in it."""
    text = str(file)
    return text if text.isprintable() else repr(text)


def _not_found(text: str, file: Path) -> str:
    names = shipped_models()
    close = difflib.get_close_matches(text.lower(), names, n=4, cutoff=0.5)
    hint = f"; did you mean {' or '.join(close)}?" if close else f"; shipped names are {', '.join(names)}"
    missing = (
        f"no {CONFIG_NAME} in it" if file.name == CONFIG_NAME and file.parent.is_dir() and str(file) != text else "no such file"
    )
    return f"--model {shown(text)}: {missing}{hint}"
