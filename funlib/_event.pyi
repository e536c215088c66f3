from typing import NamedTuple, final

class EventTimes(NamedTuple):
    submit_ns: int
    start_ns: int
    end_ns: int
    kernel_ns: int

@final
class Event:
    @property
    def is_complete(self) -> bool: ...
    @property
    def label(self) -> str: ...
    @property
    def times(self) -> EventTimes: ...
    @property
    def kernel_time(self) -> float: ...
    def wait(self) -> None: ...
