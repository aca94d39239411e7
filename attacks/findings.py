"""The base of all findings: the parts of the audit document, each checked when it is made and when it is read."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

Count = Annotated[int, Field(ge=0)]


class Findings(BaseModel):
    """A part of the document. An unknown field is an error, and so is a number that JSON cannot express.

    `OMITTED`: fields that stay out of the JSON object where they are None, since other jobs do not have them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True)
    OMITTED: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_omitted(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = plain(self)
        return {key: value for key, value in content.items() if value is not None or key not in self.OMITTED}

    def plain(self) -> dict[str, Any]:
        """The part as JSON types, under the names of the JSON object."""
        return self.model_dump(mode="json", by_alias=True)
