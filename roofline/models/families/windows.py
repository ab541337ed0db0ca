"""Which layers have a sliding window, and how wide: the rules of the families, each ``(fields, layers) -> window or None``."""

from collections.abc import Callable

from roofline.models.fields import MAX_LAYERS, MAX_TOKENS, Fields

WindowRule = Callable[[Fields, int], list[int | None]]

SLIDING = {"full_attention": False, "sliding_attention": True}
WINDOW_NAME = "sliding_window"


def no_window(fields: Fields, layers: int) -> list[int | None]:
    """No window. A file of such a family that asks for one contradicts its model."""
    kinds = fields.data.get("layer_types")
    if isinstance(kinds, list) and "sliding_attention" in kinds:
        raise fields.error(f"layer_types names sliding_attention, which {fields.owner} does not have")
    return [None] * layers


def every_layer(default: int | None) -> WindowRule:
    """The window of ``sliding_window`` in every layer, or in those that ``layer_types`` names; ``null`` is no window."""

    def rule(fields: Fields, layers: int) -> list[int | None]:
        sliding = fields.kinds("layer_types", layers, SLIDING)
        if sliding is not None:
            return by_kind(fields, sliding, default)
        window = fields.optional_size(WINDOW_NAME, default=default, most=MAX_TOKENS)
        return [window] * layers

    return rule


def periodic(default: int, period: int, *, pattern_name: str | None = "sliding_window_pattern") -> WindowRule:
    """A window in all layers but every ``period``-th, unless ``layer_types`` says otherwise."""

    def rule(fields: Fields, layers: int) -> list[int | None]:
        if fields.data.get("use_bidirectional_attention") not in (None, False):
            raise fields.error("use_bidirectional_attention makes this an encoder; only decoder-only models are modelled")
        sliding = fields.kinds("layer_types", layers, SLIDING)
        if sliding is None:
            each = period
            if pattern_name is not None and fields.has(pattern_name):
                each = fields.size(pattern_name, default=period, most=MAX_LAYERS)
            else:
                name = pattern_name or "layer_types"
                fields.infer(name, f"one full layer in {period}, the last", f"default of {fields.owner}")
            sliding = tuple((layer + 1) % each != 0 for layer in range(layers))
        return by_kind(fields, sliding, default)

    return rule


def qwen(*, last_layers_only: bool) -> WindowRule:
    """Qwen: ``use_sliding_window`` (default off) switches the window; the first ``max_window_layers`` layers then stay full."""

    def rule(fields: Fields, layers: int) -> list[int | None]:
        sliding = fields.kinds("layer_types", layers, SLIDING)
        switched_on = fields.flag("use_sliding_window", default=False)
        if not switched_on:
            if sliding is not None and any(sliding):
                raise fields.error("layer_types names sliding_attention, but use_sliding_window is false")
            return [None] * layers
        if sliding is None:
            first = fields.size("max_window_layers", default=28, least=0, most=MAX_LAYERS) if last_layers_only else 0
            sliding = tuple(layer >= first for layer in range(layers))
        return by_kind(fields, sliding, 4096)

    return rule


def smollm3(fields: Fields, layers: int) -> list[int | None]:
    """SmolLM3: ``use_sliding_window`` (default off) gives the window to the layers without RoPE, every fourth by default."""
    sliding = fields.kinds("layer_types", layers, SLIDING)
    if sliding is None:
        if not fields.flag("use_sliding_window", default=False) or fields.data.get(WINDOW_NAME) is None:
            return [None] * layers
        rope = fields.numbers("no_rope_layers", layers, most=1)
        if rope is None:
            every = fields.size("no_rope_layer_interval", default=4, most=MAX_LAYERS)
            rope = tuple(int((layer + 1) % every != 0) for layer in range(layers))
        sliding = tuple(not has_rope for has_rope in rope)
    return by_kind(fields, sliding, None)


def by_kind(fields: Fields, sliding: tuple[bool, ...], default: int | None) -> list[int | None]:
    """The window of ``sliding_window`` where ``sliding`` says so."""
    if not any(sliding):
        return [None] * len(sliding)
    window = fields.optional_size(WINDOW_NAME, default=default, most=MAX_TOKENS)
    if window is None:
        raise fields.error(f"some layers have sliding attention, but {WINDOW_NAME} gives no window")
    return [window if slides else None for slides in sliding]
