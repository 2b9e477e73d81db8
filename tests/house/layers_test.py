"""Planted violations: each rule about includes catches its own."""

import layers
import planted


def includes(*paths):
    return "".join(f'#include "{path}"\n' for path in paths)


class Layers(planted.PlantedTest):

    def problems(self, files):
        return layers.problems(self.planted(files))

    def assert_problem(self, words, path, text):
        self.assert_one(words, self.problems({path: text}))

    def assert_fine(self, path, text):
        self.assertEqual(self.problems({path: text}), [])

    def test_smaller_ranks_and_the_own_folder_are_fine(self):
        self.assert_fine(layers.POOL + "runtime.cc", includes(layers.POOL + "runtime.h", "src/library/engine/b.h"))
        self.assert_fine("src/library/pool/runtime.cc", '#include "commpool/a.h"\n#include <cuda.h>\n')
        self.assert_fine("src/emulator/nccl/a.cc", includes("src/emulator/cuda/b.h", "src/library/driver/c.h"))
        self.assert_fine("include/commpool/a.h", '#include "commpool/b.h"\n#include <stdint.h>\n')

    def test_a_rank_above_is_found(self):
        self.assert_problem("above it", "src/library/base/a.h", '#include "src/library/engine/b.h"\n')
        self.assert_problem("above it", "src/library/engine/a.cc", '#  include <src/library/pool/b.h>\n')
        self.assert_problem("above it", "include/commpool/a.h", '#include "src/library/base/b.h"\n')
        self.assert_problem("above it", "src/library/c_api/a.cc", '#include "tools/cli/b.h"\n')

    def test_a_sibling_is_found(self):
        self.assert_problem("its sibling", "src/library/engine/a.h", '#include "src/library/driver/b.h"\n')
        self.assert_problem("its sibling", "src/library/stream/a.cc", '#include "src/library/backing/b.h"\n')
        self.assert_problem("its sibling", "examples/a.cc", '#include "tools/cli/b.h"\n')

    def test_the_floors_of_pools_go_one_way(self):
        pool = layers.POOL
        self.assert_fine(pool + "growing/a.cc", includes(pool + "growing/b.h", pool + "blocks/c.h"))
        self.assert_fine(pool + "pool.h", includes(pool + "segments/a.h"))
        for words, path, include in (("growing is above blocks", "blocks/a.h", "growing/b.h"),
                                     ("pool is above segments", "segments/a.cc", "pool.h"),
                                     ("beside", "growing/a.cc", "symmetric/b.h"),
                                     ("no floor", "helpers/a.cc", "pool.h")):
            self.assert_problem(words, pool + path, includes(pool + include))

    def test_the_other_houses_use_little_of_the_library(self):
        for house in ["emulator", "interpose", "report"]:
            file = f"src/{house}/a.cc"
            self.assert_fine(file, '#include "src/library/base/b.h"\n#include "src/library/driver/c.h"\n')
            self.assert_problem("may use base/ driver/ recording/", file, '#include "src/library/pool/b.h"\n')
        self.assert_fine("src/torch/a.cc", '#include "src/library/pool/scopes/plan.h"\n#include "commpool/share.h"\n')
        self.assert_problem("may use", "src/torch/a.cc", '#include "src/library/base/b.h"\n')
        self.assert_problem("may use nothing", "src/python/a.cc", '#include "src/library/base/b.h"\n')
        self.assert_problem("above it", "src/library/driver/a.h", '#include "src/emulator/b.h"\n')
        self.assert_problem("its sibling", "src/torch/a.cc", '#include "src/python/b.h"\n')

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
        self.assert_fine("tests/tools/a_test.cc", '#include "tools/cli/b.h"\n#include "src/library/pool/c.h"\n')

    def test_gpu_headers_stay_where_the_table_has_them(self):
        for header in ["cuda.h", "cuda_runtime_api.h", "cudaTypedefs.h", "nccl.h", "nvtx3/nvToolsExt.h"]:
            for folder in ["include/commpool", "src/library/base", "src/library/engine", "src/library/c_api"]:
                self.assert_problem("no CUDA or NCCL header", folder + "/a.h", f"#include <{header}>\n")
            for folder in ["src/library/driver", "src/library/backing", "src/library/pool", "tools/cli", "examples"]:
                self.assert_fine(folder + "/a.cc", f"#include <{header}>\n")

    def test_one_public_header_adapts_cudas(self):
        self.assert_fine("include/commpool/mr.h", "#include <cuda/memory_resource>\n#include <cuda_runtime_api.h>\n")
        self.assert_problem("no CUDA or NCCL header", "include/commpool/pool.h", "#include <cuda/memory_resource>\n")

    def test_our_own_headers_are_not_taken_for_theirs(self):
        self.assert_fine("src/library/engine/a.h", '#include "src/library/engine/cuda.h"\n')
        self.assert_fine("src/library/pool/a.h",
                         includes("src/library/driver/cuda_driver.h", "src/library/driver/nccl_library.h"))

    def test_a_source_in_no_layer_is_found(self):
        self.assert_problem("no layer", "src/helpers/a.h", "")
        self.assert_problem("no layer", "extra/a.cc", "")

    def test_an_include_without_its_path_is_found(self):
        found = self.problems({"src/library/base/a.cc": '#include "b.h"\n', "src/library/base/b.h": ""})
        self.assertEqual(found, ['src/library/base/a.cc: includes "b.h" without its path from the root'])

    def test_build_outputs_are_not_read(self):
        self.assert_fine("bazel-bin/src/library/base/a.h", '#include "src/library/pool/b.h"\n')
