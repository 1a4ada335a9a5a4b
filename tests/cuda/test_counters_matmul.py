"""Counters of a matrix product against theory: every number follows from the source and the shapes."""

from __future__ import annotations

import pytest

from tests.cuda.counted_kernels import MATMUL, WARPS, N, kernel, line_of, lines_of, one, profile_matmul, square


class TestMatmul:
    def test_naive_with_a_warp_along_a_row(self) -> None:
        """A[row][k] is one element for all lanes, B[k][col] 32 neighbours."""
        profile = profile_matmul("naive", (4, 16), (32, 8))
        assert profile.global_load_requests == 2 * WARPS * N
        assert profile.global_load_sectors == (1 + 4) * WARPS * N
        assert (profile.global_store_requests, profile.global_store_sectors) == (WARPS, 4 * WARPS)
        assert profile.simt_efficiency == 1

    def test_naive_with_a_warp_over_two_rows(self) -> None:
        """16 x 16 threads: two elements of A, 32 bytes apart at least; 16 neighbours of B are 64 bytes."""
        profile = profile_matmul("naive", (8, 8), (16, 16))
        assert profile.global_load_sectors == (2 + 2) * WARPS * N
        assert profile.global_store_sectors == 4 * WARPS

    def test_swapped_indices_read_columns(self) -> None:
        profile = profile_matmul("swapped", (4, 16), (32, 8))
        load = one(profile, lines_of(MATMUL, "sum += A[row * n + k]")[1], "global", "load")
        assert load.sectors == (32 + 1) * WARPS * N
        assert load.worst == 32
        assert profile.sectors_per_load_request == 16.5
        assert profile.global_store_sectors == 32 * WARPS

    @pytest.mark.parametrize("tile", [16, 32])
    def test_tiled(self, tile: int) -> None:
        """Each warp loads 128 neighbouring bytes of A and of B a tile: T=16 as two rows of 64."""
        profile = profile_matmul(f"tiled<{tile}>", (N // tile, N // tile), (tile, tile))
        tiles, blocks = N // tile, (N // tile) ** 2
        assert profile.global_load_requests == 2 * WARPS * tiles
        assert profile.global_load_sectors == 8 * WARPS * tiles
        assert profile.shared_store_requests == profile.shared_store_wavefronts == 2 * WARPS * tiles
        assert profile.shared_load_requests == profile.shared_load_wavefronts == 2 * WARPS * N
        assert profile.bank_conflicts == 0
        assert profile.barriers == 2 * tiles * blocks

    def test_register_tiled(self) -> None:
        profile = profile_matmul("registers", (2, 2), (16, 16))
        block_steps = 4 * (N // 8)
        warp_steps = 8 * block_steps
        assert profile.global_load_requests == 2 * 2 * warp_steps
        assert profile.global_load_sectors == 2 * (4 + 4) * warp_steps  # A: 4 rows of 32 bytes
        a_store = one(profile, line_of(MATMUL, "As[i % 8]"), "shared", "store")
        assert (a_store.requests, a_store.wavefronts, a_store.worst) == (2 * warp_steps, 2 * 8 * warp_steps, 8)
        b_store = one(profile, line_of(MATMUL, "Bs[i / 64]"), "shared", "store")
        assert b_store.wavefronts == b_store.requests == 2 * warp_steps
        a_load = one(profile, line_of(MATMUL, "a[i] = As"), "shared", "load")
        assert a_load.wavefronts == a_load.requests == 8 * 4 * warp_steps
        b_load = one(profile, line_of(MATMUL, "b[j] = Bs"), "shared", "load")  # lanes 16 bytes apart: 2-way
        assert (b_load.requests, b_load.wavefronts) == (8 * 4 * warp_steps, 2 * 8 * 4 * warp_steps)
        store = one(profile, line_of(MATMUL, "= sum[i][j]"), "global", "store")
        assert (store.requests, store.sectors) == (4 * 8 * 16, 4 * 8 * 16 * 16)

    @pytest.mark.parametrize(
        ("name", "grid", "block"),
        [("naive", (8, 8), (16, 16)), ("tiled<16>", (8, 8), (16, 16)), ("registers", (2, 2), (16, 16))],
    )
    def test_work(self, name: str, grid: tuple[int, int], block: tuple[int, int]) -> None:
        """2 n³ FLOPs, and each matrix touched once in distinct bytes, however it is written."""
        profile = profile_matmul(name, grid, block)
        assert profile.flops == 2 * N**3
        assert (profile.bytes_read, profile.bytes_written) == (2 * N * N * 4, N * N * 4)
        assert profile.work.flops == 2 * N**3
        assert profile.work.bytes_read == 32 * profile.global_load_sectors
        assert profile.work.bytes_written == 32 * profile.global_store_sectors

    def test_sampling_reports_how_many_blocks_ran(self) -> None:
        profile = kernel(MATMUL, "naive").profile.sampled(4)[(4, 16), (32, 8)](square(), square(), square(), N)
        assert (profile.blocks_run, profile.blocks_total) == (4, 64)
        assert profile.global_load_sectors == 5 * N * 4 * 8  # four blocks of eight warps
        assert profile.work.flops == 2 * N**3  # scaled up, and marked as a model
        assert profile.work.how["flops"] == "model"
        assert "4 of 64 blocks" in str(profile)
