"""The kernel cache and the compiler process: whatever happens to them, the result is right, or
there is one clear error and the next call works. Each probe is a process of its own."""

import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import time
import types

import pytest
from helpers import COLLECT_LOG, SOURCE, merged_environment

import funlib

# One kernel in one process. Small whole numbers, so that the result is exact; few rows, which every
# kernel takes.
PROBE = (
    COLLECT_LOG
    + """
import json, sys, time
import numpy as np
import funlib

def product(kernel, dtype):
    a = np.arange(3 * 21).reshape(3, 21).astype(dtype) % 7
    b = np.arange(21 * 50).reshape(21, 50).astype(dtype) % 5
    started = time.monotonic()
    c = funlib.gemm(funlib.DeviceTensor.from_numpy(a), funlib.DeviceTensor.from_numpy(b),
                    kernel=kernel).to_host()
    return bool((c == a @ b).all()), time.monotonic() - started

answer = {"right": True, "seconds": []}
for name in sys.argv[1:]:
    kernel, dtype = name.split(":")
    for attempt in range(2):
        try:
            right, seconds = product(kernel, dtype)
        except funlib.CompileError as error:
            answer.setdefault("errors", []).append(str(error))
        else:
            answer["right"] = answer["right"] and right
            answer["seconds"].append(seconds)
            break
    else:
        answer["right"] = None
answer.update(funlib.cache_info()._asdict(), log=records)
print(json.dumps(answer))
"""
)


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def probe(run_python, cache):
    """probe(*["kernel:dtype"], **environment) -> what PROBE found, as a namespace."""

    def run(*kernels, timeout=120, **environment):
        environment = {"FUNLIB_CACHE_DIR": cache} | environment
        result = run_python(
            PROBE, *(kernels or ("gemm_tiled:float32",)), timeout=timeout, **environment
        )
        assert result.returncode == 0, result.stderr
        assert "Traceback" not in result.stderr
        return types.SimpleNamespace(**{"errors": []} | json.loads(result.stdout))

    return run


def images(cache):
    return sorted(path for path in cache.iterdir() if path.is_file())


def size_of(cache):
    return sum(path.stat().st_size for path in images(cache))


# ---- cold and warm -------------------------------------------------------------------------------


def test_cold_then_warm(probe, cache):
    cold = probe()
    assert cold.right
    assert cold.compilations >= 1
    assert cold.disk_hits == 0
    assert cold.rejected == 0
    assert cold.directory == str(cache)
    assert cold.mode == "on"
    assert any(
        level == "INFO" and "compiled" in text and "gemm_tiled" in text for level, text in cold.log
    ), cold.log
    warm = probe()
    assert warm.right
    assert warm.compilations == 0
    assert warm.disk_hits >= 1
    assert warm.rejected == 0
    assert not any("compiled" in text for _, text in warm.log)


def test_private_directory(probe, cache):
    probe()
    assert stat.S_IMODE(cache.stat().st_mode) & 0o077 == 0
    for image in images(cache):
        assert stat.S_IMODE(image.stat().st_mode) & 0o022 == 0


def test_directory_of_others_is_not_used(probe, cache):
    """Images are native code: a directory that everybody can write to feeds nobody."""
    probe()
    cache.chmod(0o777)
    answer = probe()
    assert answer.right
    assert answer.disk_hits == 0
    assert any(level == "WARNING" and str(cache) in text for level, text in answer.log)


def test_default_directory(probe, tmp_path):
    answer = probe(FUNLIB_CACHE_DIR=None, XDG_CACHE_HOME=None, HOME=tmp_path)
    assert answer.right
    assert answer.directory == str(tmp_path / ".cache" / "funlib")
    answer = probe(FUNLIB_CACHE_DIR=None, XDG_CACHE_HOME=tmp_path / "xdg", HOME=tmp_path)
    assert answer.right
    assert answer.directory == str(tmp_path / "xdg" / "funlib")


def test_another_source_is_another_image(probe, cache, tmp_path):
    """An edited kernel is compiled anew and does not disturb the image of the original."""
    probe()
    copy = tmp_path / "kernels"
    shutil.copytree(SOURCE / "lib" / "kernels", copy)
    source = copy / kernel_source("gemm_tiled")
    source.write_text(source.read_text() + "\n// edited\n")
    edited = probe(FUNLIB_KERNEL_DIR=copy)
    assert edited.right
    assert edited.compilations == 1
    assert probe().compilations == 0
    assert probe(FUNLIB_KERNEL_DIR=copy).compilations == 0


# ---- damage --------------------------------------------------------------------------------------


def flip(position):
    def damage(path):
        content = bytearray(path.read_bytes())
        content[int(position * (len(content) - 1))] ^= 0x10
        path.write_bytes(content)

    return damage


DAMAGE = {
    "empty": lambda path: path.write_bytes(b""),
    "one byte": lambda path: path.write_bytes(path.read_bytes()[:1]),
    "header only": lambda path: path.write_bytes(path.read_bytes()[:32]),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "last byte missing": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "one byte more": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "garbage": lambda path: path.write_bytes(os.urandom(path.stat().st_size)),
    "huge lengths": lambda path: path.write_bytes(
        path.read_bytes()[:8] + b"\xff" * 16 + path.read_bytes()[24:]
    ),
    "a directory": lambda path: (path.unlink(), path.mkdir()),
} | {f"flip at {position:.0%}": flip(position) for position in (0, 0.001, 0.01, 0.1, 0.5, 0.9, 1)}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """A cache directory that one probe filled."""
    cache = tmp_path_factory.mktemp("pristine") / "cache"
    script = cache.parent / "probe.py"
    script.write_text(PROBE)
    subprocess.run(
        [sys.executable, script, "gemm_tiled:float32", "gemm_tiled:int32"],
        env=merged_environment({"FUNLIB_CACHE_DIR": cache}),
        check=True,
        timeout=120,
        capture_output=True,
    )
    return cache


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_image(probe, cache, pristine, damage):
    shutil.copytree(pristine, cache)
    for image in images(cache):
        damage(image)
    answer = probe()
    assert answer.right
    assert answer.errors == []
    assert answer.rejected >= 1
    assert answer.compilations >= 1
    assert any(level == "WARNING" for level, _ in answer.log)
    if all(path.is_file() for path in cache.iterdir()):
        mended = probe()
        assert mended.right
        assert (mended.compilations, mended.rejected) == (0, 0)


def test_exchanged_images(probe, cache, pristine):
    """An intact image under the name of another kernel."""
    shutil.copytree(pristine, cache)
    contents = [image.read_bytes() for image in images(cache)]
    assert len(contents) > 1
    for image, content in zip(images(cache), contents[1:] + contents[:1], strict=True):
        image.write_bytes(content)
    answer = probe()
    assert answer.right
    assert answer.rejected >= 1


def test_foreign_files(probe, cache, pristine):
    """Other files in the directory are left alone."""
    shutil.copytree(pristine, cache)
    (cache / "README").write_text("not an image")
    (cache / "folder").mkdir()
    (cache / "link").symlink_to("nowhere")
    answer = probe(FUNLIB_CACHE_MAX_BYTES=1)
    assert answer.right
    probe("gemm:float32", FUNLIB_CACHE_MAX_BYTES=1)
    assert (cache / "README").read_text() == "not an image"
    assert (cache / "folder").is_dir()


# ---- places that can't be written ----------------------------------------------------------------


@pytest.fixture
def mounted(tmp_path):
    """mounted(options) -> a new tmpfs; skips where mounting is not allowed."""
    places = []

    def mount(options):
        place = tmp_path / f"mount_{len(places)}"
        place.mkdir()
        result = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", place],
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            pytest.skip(f"mounting is not allowed here: {result.stderr.strip()}")
        places.append(place)
        return place

    yield mount
    for place in places:
        subprocess.run(["umount", place], check=True)


def assert_right_without_cache(answer, place):
    assert answer.right
    assert answer.errors == []
    assert answer.compilations >= 1
    warnings = [text for level, text in answer.log if level == "WARNING"]
    assert len(warnings) == 1, warnings
    assert str(place) in warnings[0]


# Enough to fill what has room for three, as `probe` takes them; quick to compile.
SEVERAL = (
    *("gemm:float32", "gemm:int32", "gemm_tiled:float32", "gemm_tiled:int32"),
    *("gemm_blocked2x2:float32", "gemm_padded:float32"),
)


def test_full_disk(probe, mounted):
    place = mounted("size=4k,mode=700")
    assert_right_without_cache(probe(FUNLIB_CACHE_DIR=place / "c"), place)
    assert not any(path.is_file() for path in place.rglob("*")), "a partial file was left"
    assert probe(FUNLIB_CACHE_DIR=place / "c").right


def test_disk_that_fills_up(probe, pristine, mounted):
    """Room for some images, not for all."""
    room = 3 * max(path.stat().st_size for path in images(pristine))
    place = mounted(f"size={room},mode=700")
    answer = probe(*SEVERAL, FUNLIB_CACHE_DIR=place)
    assert answer.right
    assert 0 < len(images(place)) < len(SEVERAL)
    again = probe(*SEVERAL, FUNLIB_CACHE_DIR=place)
    assert again.right
    assert again.rejected == 0


def test_file_size_limit(run_python, cache):
    """A limit on the size of files (ulimit -f) stops the cache, not the process."""
    result = run_python(
        "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n" + PROBE,
        "gemm_tiled:float32",
        FUNLIB_CACHE_DIR=cache,
    )
    assert result.returncode == 0, result.stderr
    answer = types.SimpleNamespace(**{"errors": []} | json.loads(result.stdout))
    assert_right_without_cache(answer, cache)
    assert images(cache) == []


def test_read_only_directory(probe, cache, pristine, mounted):
    """What is there is used, what is missing is compiled; one warning says so."""
    place = mounted("size=4m,mode=700")
    shutil.copytree(pristine, place / "c")
    subprocess.run(["mount", "-o", "remount,ro", place], check=True)
    warm = probe(FUNLIB_CACHE_DIR=place / "c")
    assert warm.right
    assert (warm.compilations, warm.rejected) == (0, 0)
    other = probe("gemm:float32", FUNLIB_CACHE_DIR=place / "c")
    assert other.right
    assert other.compilations >= 1
    assert any(level == "WARNING" and str(place) in text for level, text in other.log)


def test_impossible_directories(probe, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for place in (file, file / "below", "/proc/funlib", "/dev/null"):
        assert_right_without_cache(probe(FUNLIB_CACHE_DIR=place), place)
    assert file.read_text() == ""


def test_no_home(probe, tmp_path):
    answer = probe(FUNLIB_CACHE_DIR=None, XDG_CACHE_HOME=None, HOME="/proc/nowhere")
    assert answer.right


def test_switched_off(probe, cache):
    answer = probe(FUNLIB_CACHE="off")
    assert answer.right
    assert answer.mode == "off"
    assert answer.compilations >= 1
    assert not cache.exists()


def test_readonly_mode(probe, cache, pristine):
    answer = probe(FUNLIB_CACHE="readonly")
    assert answer.right
    assert answer.mode == "readonly"
    assert not cache.exists()
    shutil.copytree(pristine, cache)
    before = {path: path.stat().st_mtime_ns for path in images(cache)}
    warm = probe(FUNLIB_CACHE="readonly")
    assert warm.right
    assert warm.compilations == 0
    other = probe("gemm:float32", FUNLIB_CACHE="readonly")
    assert other.right
    assert {path: path.stat().st_mtime_ns for path in images(cache)} == before


def test_misspelt_settings(probe):
    answer = probe(FUNLIB_CACHE="maybe", FUNLIB_CACHE_MAX_BYTES="lots")
    assert answer.right
    warnings = " ".join(text for level, text in answer.log if level == "WARNING")
    for part in ("FUNLIB_CACHE ", "maybe", "FUNLIB_CACHE_MAX_BYTES", "lots"):
        assert part in warnings


# ---- size and several processes ------------------------------------------------------------------


def test_size_bound(probe, cache, pristine):
    bound = 3 * max(path.stat().st_size for path in images(pristine))
    for name in SEVERAL:
        answer = probe(name, FUNLIB_CACHE_MAX_BYTES=bound)
        assert answer.right
        assert answer.max_bytes == bound
        assert size_of(cache) <= bound
    assert 0 < len(images(cache)) < len(SEVERAL)
    # The last one used is still there, and right.
    assert probe(SEVERAL[-1], FUNLIB_CACHE_MAX_BYTES=bound).compilations == 0


def test_least_recently_used_goes_first(probe, cache):
    first, second, third = "gemm:float32", "gemm_tiled:float32", "gemm:int32"
    probe(first)
    common = set(images(cache))
    probe(second)
    for path in images(cache):
        os.utime(path, (time.time() - 1000,) * 2)
    assert probe(first).compilations == 0  # touches it
    kept = size_of(cache)
    probe(third, FUNLIB_CACHE_MAX_BYTES=kept)
    assert common <= set(images(cache))
    assert probe(first).compilations == 0


@pytest.mark.parametrize("bound", [0, 1])
def test_no_room_at_all(probe, cache, bound):
    assert probe(FUNLIB_CACHE_MAX_BYTES=bound).right
    assert probe(FUNLIB_CACHE_MAX_BYTES=bound).right
    assert size_of(cache) <= bound


def test_processes_at_once(cache, tmp_path):
    """Several processes that fill one cold cache at the same time."""
    script = tmp_path / "probe.py"
    script.write_text(PROBE)
    command = [sys.executable, script, "gemm_tiled:float32", "gemm:float32"]
    environment = merged_environment({"FUNLIB_CACHE_DIR": cache})

    def start():
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    for expected in ("cold", "warm"):
        processes = [start() for _ in range(4)]
        answers = [json.loads(process.communicate(timeout=300)[0]) for process in processes]
        for answer in answers:
            assert answer["right"]
            assert answer["rejected"] == 0
            assert "errors" not in answer
            if expected == "warm":
                assert answer["compilations"] == 0
    assert all(path.suffix == ".syclbin" for path in images(cache)), "unfinished files were left"


def test_process_killed_while_filling(cache, tmp_path, probe):
    """Processes that die at any moment leave nothing that disturbs the next one."""
    script = tmp_path / "probe.py"
    script.write_text(PROBE)
    environment = merged_environment({"FUNLIB_CACHE_DIR": cache})
    for delay in (0.3, 0.8, 1.3, 1.8, 2.3):
        process = subprocess.Popen(
            [sys.executable, script, "gemm_tiled:float32", "gemm:int32"],
            env=environment,
            stdout=subprocess.DEVNULL,
        )
        time.sleep(delay)
        process.kill()
        process.wait()
    answer = probe("gemm_tiled:float32", "gemm:int32")
    assert answer.right
    assert answer.rejected == 0


# ---- the compiler process ------------------------------------------------------------------------


def kernel_source(name):
    return next(pathlib.Path(k.source).name for k in funlib.kernels() if k.name == name)


@pytest.fixture
def compiler(tmp_path):
    """compiler(shell script) -> a stand-in for the compiler program; $REAL is the real one."""

    def make(body):
        path = tmp_path / "compiler.sh"
        real = funlib.runtime_info().compiler
        path.write_text(f"#!/bin/sh\nREAL='{real}'\nHERE='{tmp_path}'\n{textwrap.dedent(body)}")
        path.chmod(0o755)
        return path

    return make


BAD_COMPILERS = {
    "killed": ("kill -9 $$", "signal 9"),
    "segmentation fault": ("kill -SEGV $$", "signal 11"),
    "killed in the middle": (
        '(sleep 0.5; kill -9 $$) > /dev/null 2>&1 & exec "$REAL" "$@"',
        "signal 9",
    ),
    "exit code": ("echo 'no licence' >&2; exit 3", "code 3"),
    "log": ("cat > /dev/null; echo 'the reason why' >&2; exit 1", "the reason why"),
    "silence": ("exit 0", "answer"),
    "silence after reading": ("cat > /dev/null", "answer"),
    "garbage": ("cat > /dev/null; head -c 100000 /dev/urandom", "answer"),
    "text": ("cat > /dev/null; echo hello", "answer"),
    "truncated": ('"$REAL" "$@" | head -c 1000', "answer"),
    "one byte short": ('"$REAL" "$@" > "$HERE/answer"; head -c -1 "$HERE/answer"', "answer"),
    "chatter around it": ('echo start; "$REAL" "$@"; echo end', "answer"),
}


@pytest.mark.parametrize(("body", "text"), BAD_COMPILERS.values(), ids=BAD_COMPILERS)
def test_bad_compiler(probe, cache, compiler, body, text):
    answer = probe(FUNLIB_COMPILER=compiler(body))
    assert answer.right is None
    assert len(answer.errors) == 2  # the second call tries again
    for error in answer.errors:
        assert "compil" in error
        assert text in error
    assert not cache.exists() or images(cache) == []
    good = probe()
    assert good.right
    assert (good.errors, good.rejected) == ([], 0)


def test_next_call_works(probe, compiler):
    """A compiler that fails once: the failure is not remembered."""
    script = compiler(
        """
        if [ ! -e "$HERE/tried" ]; then touch "$HERE/tried"; kill -9 $$; fi
        exec "$REAL" "$@"
        """
    )
    answer = probe(FUNLIB_COMPILER=script)
    assert answer.right
    assert len(answer.errors) == 1


HANGING = {
    "from the start": "exec sleep 100",
    "after reading": "cat > /dev/null; exec sleep 100",
    "with closed output": "exec >&- 2>&- <&-; sleep 100",
    "after half an answer": "cat > /dev/null; printf FUNLIBM1; exec sleep 100",
    "in a child": "cat > /dev/null; sleep 100; exit 0",
}


@pytest.mark.parametrize("body", HANGING.values(), ids=HANGING)
def test_hanging_compiler(probe, cache, compiler, tmp_path, body):
    script = compiler('echo $$ >> "$HERE/started"\n' + body)
    started = time.monotonic()
    answer = probe(FUNLIB_COMPILER=script, FUNLIB_COMPILE_TIMEOUT=2, timeout=60)
    assert time.monotonic() - started < 30
    assert answer.right is None
    for error in answer.errors:
        assert "FUNLIB_COMPILE_TIMEOUT" in error
        assert "2 s" in error
    for line in (tmp_path / "started").read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(line), 0)
    assert probe().right


@pytest.mark.parametrize("then", ['exec "$REAL" "$@"', "echo 'the reason why' >&2; exit 3"])
def test_streams_of_the_compiler_open_elsewhere(probe, compiler, then):
    """In a process that lives on, as a fork by another thread can leave one: not waited for."""
    script = compiler(f'sleep 60 & echo $! >> "$HERE/holders"\n{then}')
    try:
        answer = probe(FUNLIB_COMPILER=script, FUNLIB_COMPILE_TIMEOUT=30)
    finally:
        for line in (script.parent / "holders").read_text().split():
            os.kill(int(line), signal.SIGKILL)
    if "REAL" in then:
        assert (answer.right, answer.errors) == (True, [])
        return
    assert answer.right is None
    assert len(answer.errors) == 2
    for error in answer.errors:
        assert "code 3" in error
        assert "the reason why" in error


def test_missing_compiler(probe, tmp_path):
    for path in (tmp_path / "nothing", tmp_path, "/dev/null"):
        answer = probe(FUNLIB_COMPILER=path)
        assert answer.right is None
        for error in answer.errors:
            assert str(path) in error
    plain = tmp_path / "plain"
    plain.write_text("not a program")
    plain.chmod(0o644)
    assert str(plain) in probe(FUNLIB_COMPILER=plain).errors[0]


def test_warm_cache_needs_no_compiler(probe):
    probe()
    answer = probe(FUNLIB_COMPILER="/nonexistent/compiler")
    assert answer.right
    assert answer.compilations == 0


def test_compiler_inherits_no_descriptors(probe, compiler, tmp_path):
    """The compiler gets its three streams and nothing else of the user's process."""
    script = compiler(
        """
        ls -l /proc/self/fd > "$HERE/descriptors"
        exec "$REAL" "$@"
        """
    )
    assert probe(FUNLIB_COMPILER=script).right
    listing = (tmp_path / "descriptors").read_text()
    numbers = [line.split()[8] for line in listing.splitlines() if "->" in line]
    # Number 3 is the listing itself.
    assert set(numbers) <= {"0", "1", "2", "3"}, listing


def test_children_ignored_by_the_user(run_python, cache):
    """A program that ignores SIGCHLD (its children are reaped by the system) compiles too."""
    result = run_python(
        "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n" + PROBE,
        "gemm_tiled:float32",
        FUNLIB_CACHE_DIR=cache,
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["right"]


def test_interrupting_signals(run_python, cache):
    """Signals that arrive while the compiler runs don't break it."""
    result = run_python(
        "import signal\n"
        "signal.signal(signal.SIGALRM, lambda *_: None)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)\n"
        + PROBE
        + "\nsignal.setitimer(signal.ITIMER_REAL, 0)\n",
        "gemm_tiled:float32",
        FUNLIB_CACHE_DIR=cache,
    )
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["right"]
    assert "errors" not in answer


# ---- errors in a kernel source -------------------------------------------------------------------


def test_syntax_error_in_a_kernel(probe, cache, tmp_path):
    """The exception shows the compiler's message with file and line."""
    copy = tmp_path / "kernels"
    shutil.copytree(SOURCE / "lib" / "kernels", copy)
    source = copy / kernel_source("gemm_tiled")
    lines = source.read_text().splitlines()
    lines.append("int planted_mistake = undeclared_name;")
    source.write_text("\n".join(lines) + "\n")
    answer = probe(FUNLIB_KERNEL_DIR=copy)
    assert answer.right is None
    for error in answer.errors:
        assert f"{source.name}:{len(lines)}:" in error
        assert "undeclared_name" in error
        assert "error:" in error
        assert "gemm_tiled" in error
    assert probe().right


def test_syntax_error_in_a_header(probe, cache, tmp_path):
    copy = tmp_path / "kernels"
    shutil.copytree(SOURCE / "lib" / "kernels", copy)
    headers = sorted(path for path in copy.rglob("*") if path.suffix in (".h", ".hpp"))
    if not headers:
        pytest.skip("the kernels include no header of their own")
    for header in headers:
        header.write_text(header.read_text() + "\nint planted_mistake = undeclared_name;\n")
    answer = probe(FUNLIB_KERNEL_DIR=copy)
    assert answer.right is None
    assert any(f"{header.name}:" in answer.errors[0] for header in headers)
    assert "undeclared_name" in answer.errors[0]


def test_missing_kernel_source(probe, tmp_path):
    copy = tmp_path / "kernels"
    shutil.copytree(SOURCE / "lib" / "kernels", copy)
    (copy / kernel_source("gemm_tiled")).unlink()
    answer = probe(FUNLIB_KERNEL_DIR=copy, timeout=60)
    assert answer.right is None
    assert kernel_source("gemm_tiled") in answer.errors[0]
    assert str(copy) in answer.errors[0]


def test_sources_from_a_directory(run_python):
    result = run_python(
        "import funlib; print(funlib.runtime_info().kernel_sources)",
        FUNLIB_KERNEL_DIR=SOURCE / "lib" / "kernels",
    )
    assert result.stdout.strip() == str(SOURCE / "lib" / "kernels")
    result = run_python("import funlib; print(funlib.runtime_info().kernel_sources)")
    assert result.stdout.strip() == "embedded"
