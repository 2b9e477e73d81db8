"""Planted violations: each rule about includes catches its own."""

import pathlib
import tempfile
import unittest

import layers


class Layers(unittest.TestCase):

    def problems(self, files):
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                file = pathlib.Path(root, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            return layers.problems(pathlib.Path(root))

    def assert_problem(self, words, path, text):
        found = self.problems({path: text})
        self.assertEqual(len(found), 1, found)
        self.assertIn(words, found[0])

    def assert_fine(self, path, text):
        self.assertEqual(self.problems({path: text}), [])

    def test_smaller_ranks_and_the_own_folder_are_fine(self):
        self.assert_fine("src/pool/runtime.cc", '#include "src/pool/runtime.h"\n#include "src/engine/b.h"\n')
        self.assert_fine("src/pool/runtime.cc", '#include "commpool/a.h"\n#include <cuda.h>\n')
        self.assert_fine("src/emulator/nccl/a.cc", '#include "src/emulator/cuda/b.h"\n#include "src/driver/c.h"\n')
        self.assert_fine("include/commpool/a.h", '#include "commpool/b.h"\n#include <stdint.h>\n')

    def test_a_rank_above_is_found(self):
        self.assert_problem("above it", "src/base/a.h", '#include "src/engine/b.h"\n')
        self.assert_problem("above it", "src/engine/a.cc", '#  include <src/pool/b.h>\n')
        self.assert_problem("above it", "include/commpool/a.h", '#include "src/base/b.h"\n')
        self.assert_problem("above it", "src/c_api/a.cc", '#include "tools/cli/b.h"\n')

    def test_a_sibling_is_found(self):
        self.assert_problem("its sibling", "src/engine/a.h", '#include "src/driver/b.h"\n')
        self.assert_problem("its sibling", "src/stream/a.cc", '#include "src/backing/b.h"\n')
        self.assert_problem("its sibling", "examples/a.cc", '#include "tools/cli/b.h"\n')

    def test_the_floors_of_pools_go_one_way(self):
        self.assert_fine("src/pool/growing/a.cc", '#include "src/pool/growing/b.h"\n#include "src/pool/blocks/c.h"\n')
        self.assert_fine("src/pool/pool.h", '#include "src/pool/segments/a.h"\n')
        self.assert_problem("growing is above blocks", "src/pool/blocks/a.h", '#include "src/pool/growing/b.h"\n')
        self.assert_problem("pool is above segments", "src/pool/segments/a.cc", '#include "src/pool/pool.h"\n')
        self.assert_problem("beside", "src/pool/growing/a.cc", '#include "src/pool/symmetric/b.h"\n')
        self.assert_problem("no floor", "src/pool/helpers/a.cc", '#include "src/pool/pool.h"\n')

    def test_the_table_of_pools_is_in_the_order_of_the_floors(self):
        rows = [" and ".join(f"`{name}.h`" for name in names) for names in layers.POOL_FLOORS]
        right = "".join(f"| {floor} | {row} | what | |\n" for floor, row in enumerate(rows, 1))
        self.assertEqual(layers.pool_table(right), right)
        self.assertEqual(layers.pool_table("".join(f"| {row} | what | |\n" for row in reversed(rows))), right)
        self.assert_fine(layers.POOL_README, right)
        self.assert_problem("not in the order", layers.POOL_README, right.replace("| 1 |", "| 2 |"))
        without = "".join(line for line in right.splitlines(keepends=True) if "`runtime.h`" not in line)
        self.assert_problem("no row is of runtime", layers.POOL_README, without)
        self.assert_problem("one floor's", layers.POOL_README, right.replace("`runtime.h`", "`runtime.h` and `pool.h`"))

    def test_tests_may_open_everything(self):
        self.assert_fine("tests/tools/a_test.cc", '#include "tools/cli/b.h"\n#include "src/pool/c.h"\n')

    def test_gpu_headers_stay_where_the_table_has_them(self):
        for header in ["cuda.h", "cuda_runtime_api.h", "cudaTypedefs.h", "nccl.h", "nvtx3/nvToolsExt.h"]:
            for folder in ["include/commpool", "src/base", "src/engine", "src/c_api"]:
                self.assert_problem("no CUDA or NCCL header", folder + "/a.h", f"#include <{header}>\n")
            for folder in ["src/driver", "src/backing", "src/registration", "src/pool", "tools/cli", "examples"]:
                self.assert_fine(folder + "/a.cc", f"#include <{header}>\n")

    def test_one_public_header_adapts_cudas(self):
        self.assert_fine("include/commpool/mr.h", "#include <cuda/memory_resource>\n#include <cuda_runtime_api.h>\n")
        self.assert_problem("no CUDA or NCCL header", "include/commpool/pool.h", "#include <cuda/memory_resource>\n")

    def test_our_own_headers_are_not_taken_for_theirs(self):
        self.assert_fine("src/engine/a.h", '#include "src/engine/cuda.h"\n')
        self.assert_fine("src/pool/a.h", '#include "src/driver/cuda_driver.h"\n#include "src/driver/nccl_library.h"\n')

    def test_a_source_in_no_layer_is_found(self):
        self.assert_problem("no layer", "src/helpers/a.h", "")
        self.assert_problem("no layer", "extra/a.cc", "")

    def test_an_include_without_its_path_is_found(self):
        found = self.problems({"src/base/a.cc": '#include "b.h"\n', "src/base/b.h": ""})
        self.assertEqual(found, ['src/base/a.cc: includes "b.h" without its path from the root'])

    def test_build_outputs_are_not_read(self):
        self.assert_fine("bazel-bin/src/base/a.h", '#include "src/pool/b.h"\n')
