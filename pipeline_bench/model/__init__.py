"""Every type that a session file stores or a trial's process sends, and the form of a comparison of two sessions."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Immutable data that a file may hold: no field that is not declared, and no number that JSON lacks."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
