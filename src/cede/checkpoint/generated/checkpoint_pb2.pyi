from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HintRequest(_message.Message):
    __slots__ = ("number", "seconds_left", "withdrawn", "goes_on")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SECONDS_LEFT_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    GOES_ON_FIELD_NUMBER: _ClassVar[int]
    number: int
    seconds_left: float
    withdrawn: bool
    goes_on: bool
    def __init__(self, number: _Optional[int] = ..., seconds_left: _Optional[float] = ..., withdrawn: bool = ..., goes_on: bool = ...) -> None: ...

class HintReply(_message.Message):
    __slots__ = ("estimate", "progress", "deferral", "saved", "failed")
    ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    DEFERRAL_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    estimate: Estimate
    progress: Progress
    deferral: Deferral
    saved: Saved
    failed: Failed
    def __init__(self, estimate: _Optional[_Union[Estimate, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., deferral: _Optional[_Union[Deferral, _Mapping]] = ..., saved: _Optional[_Union[Saved, _Mapping]] = ..., failed: _Optional[_Union[Failed, _Mapping]] = ...) -> None: ...

class Estimate(_message.Message):
    __slots__ = ("seconds",)
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    seconds: float
    def __init__(self, seconds: _Optional[float] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("fraction", "seconds_left")
    FRACTION_FIELD_NUMBER: _ClassVar[int]
    SECONDS_LEFT_FIELD_NUMBER: _ClassVar[int]
    fraction: float
    seconds_left: float
    def __init__(self, fraction: _Optional[float] = ..., seconds_left: _Optional[float] = ...) -> None: ...

class Deferral(_message.Message):
    __slots__ = ("seconds", "why", "count")
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    seconds: float
    why: str
    count: int
    def __init__(self, seconds: _Optional[float] = ..., why: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class Saved(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("why",)
    WHY_FIELD_NUMBER: _ClassVar[int]
    why: str
    def __init__(self, why: _Optional[str] = ...) -> None: ...
