from typing import NamedTuple

class RuntimeInfo(NamedTuple):
    library: str
    sycl_library: str
    compiler: str
    opencl_cpu: str
    kernel_sources: str
    cuda_adapter: str
    cuda_toolkit: str

class CacheInfo(NamedTuple):
    directory: str
    mode: str
    max_bytes: int
    compilations: int
    disk_hits: int
    rejected: int

def version() -> str: ...
def runtime_info() -> RuntimeInfo: ...
def cache_info() -> CacheInfo: ...
def stop_logging() -> None: ...
