"""Models that grew after runs were stored: what is new and at its default is not written, so that old hashes hold."""

from typing import Any, ClassVar

from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer


class Grown(BaseModel):
    """A model whose `later` fields are left out of every dump where they have their default.

    A spec, a header or a summary that asks for nothing new has the bytes and the hash that it had before the field
    came.
    """

    later: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_what_is_later(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields
        silent = {name for name in self.later if getattr(self, name) == fields[name].default}
        return {name: value for name, value in dump(self).items() if name not in silent}
