"""Whole programs: twenty that are right, run unchanged in every mode, and five with a bug that check has to find."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mlsys_labkit.cuda import run_program

PROGRAMS = Path(__file__).parent / "programs"
CORRECT = sorted(path.stem for path in PROGRAMS.glob("*.cu"))
# Not installed with the compiler alone: cuBLAS, cuRAND and the helpers of the CUDA samples.
NEEDS_MORE_THAN_NVCC = {"blas_and_pitch", "monte_carlo_pi", "convolution"}
# What the bug is, and the line it is on.
BUGS = {
    "missing_barrier": ("shared_race", "Mds[ty][tx] ="),
    "missing_guard": ("out_of_bounds", "C[i] = A[i] + B[i];"),
    "lost_updates": ("global_race", "histo[alphabet_position / 4] += 1;"),
    "halo_too_small": ("shared_out_of_bounds", "temp[lindex + BLOCK_SIZE] ="),
    "forgotten_copy": ("illegal_address", "now[wrap("),
}


def last_line(text: str) -> str:
    return text.rstrip().rpartition("\n")[2]


def test_there_are_enough_programs() -> None:
    assert len(CORRECT) >= 15


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_program_passes_its_own_check(name: str) -> None:
    result = run_program(PROGRAMS / f"{name}.cu", backend="simulator")
    assert (result.returncode, last_line(result.stdout), result.stopped) == (0, "PASS", ""), result.stderr
    assert result.launches or name == "thrust_snippets"


@pytest.mark.parametrize("name", CORRECT)
def test_check_finds_nothing_in_a_correct_program(name: str) -> None:
    result = run_program(PROGRAMS / f"{name}.cu", check=True)
    assert last_line(result.stdout) == "PASS", result.stderr
    wrong_on_purpose = ["out_of_bounds"] if name == "error_handling" else []
    assert [finding.kind for finding in result.findings] == wrong_on_purpose


@pytest.mark.parametrize("name", CORRECT)
def test_profile_counts_every_launch_that_ran(name: str) -> None:
    result = run_program(PROGRAMS / f"{name}.cu", profile=True)
    assert last_line(result.stdout) == "PASS", result.stderr
    ran = [launch for launch in result.launches if not launch.error]
    assert len(result.profiles) >= min(len(ran), 100)
    assert all(profile.steps for profile in result.profiles)
    unknown = {line.line for profile in result.profiles for line in profile.lines if line.requests and not line.line}
    assert not unknown


@pytest.mark.parametrize("name", sorted(BUGS))
def test_check_finds_the_bug_on_its_line(name: str) -> None:
    kind, text = BUGS[name]
    result = run_program(PROGRAMS / "buggy" / f"{name}.cu", check=True)
    places = {
        (finding.kind, line) for finding in result.findings for line in (finding.source_line, finding.other_source_line)
    }
    assert any(found == kind and text in line for found, line in places), result.findings


def test_a_host_pointer_in_a_kernel_is_reported_without_check() -> None:
    result = run_program(PROGRAMS / "buggy" / "forgotten_copy.cu", backend="simulator")
    assert last_line(result.stdout) == "FAIL"
    assert any("host memory" in note for note in result.notes)
    assert [finding.kind for finding in result.findings] == ["illegal_address"]


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("name", sorted(set(CORRECT) - NEEDS_MORE_THAN_NVCC))
def test_nvcc_accepts_the_program(name: str, tmp_path: Path) -> None:
    command = ["nvcc", "-arch=sm_90", "-ptx", "-o", tmp_path / "program.ptx", PROGRAMS / f"{name}.cu"]
    subprocess.run(command, check=True, capture_output=True)


def test_profile_agrees_with_theory_on_tiled_matrix_multiplication() -> None:
    result = run_program(PROGRAMS / "matrix_multiply.cu", ["64"], profile=True)
    (profile,) = result.profiles
    warps, tiles = (64 // 16) ** 2 * 8, 64 // 16  # 16 x 16 threads are 8 warps
    assert profile.global_load_requests == 2 * warps * tiles
    assert profile.sectors_per_load_request == 4  # a warp reads two rows of 16 floats
    assert profile.shared_load_requests == 2 * 16 * warps * tiles
    assert profile.bank_conflicts == 0
    assert profile.barriers == 2 * tiles * (64 // 16) ** 2


def test_transpose_ladder_shows_its_three_lessons() -> None:
    profiles = run_program(PROGRAMS / "transpose.cu", profile=True).profiles
    copy, naive, shared, padded = profiles
    assert (copy.sectors_per_load_request, copy.sectors_per_store_request) == (4, 4)
    assert (naive.sectors_per_load_request, naive.sectors_per_store_request) == (4, 32)
    assert (shared.sectors_per_store_request, shared.worst_bank_conflict) == (4, 32)
    assert (padded.sectors_per_store_request, padded.worst_bank_conflict) == (4, 1)
