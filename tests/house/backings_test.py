"""Planted knowledge of a backing: each kind is found, where it need not be."""

import backings
import planted

_LIST = "// All.\nCOMMPOOL_BACKING(Vmm, VMM)\nCOMMPOOL_BACKING(Files, FILES)\n"


class Backings(planted.PlantedTest):

    def problems(self, path, text, listed=_LIST):
        return backings.problems(self.planted({"src/library/backing/backings.inc": listed, path: text}))

    def assert_found(self, line, path, text):
        self.assert_one(f"{path}:{line}: ", self.problems(path, text))

    def test_are_read_from_the_list(self):
        self.assertEqual(backings.listed(_LIST), [("Vmm", "VMM"), ("Files", "FILES")])

    def test_an_empty_list_is_found(self):
        self.assertEqual(len(self.problems("src/library/pool/a.cc", "", listed="// None.\n")), 1)

    def test_know_themselves(self):
        text = "constinit const BackingRow kFilesBacking = {.kind = BackingKind::kFiles, .name = \"files\"};\n"
        self.assertEqual(self.problems("src/library/backing/files_backing.cc", text), [])
        self.assert_found(1, "src/library/backing/vmm_backing.cc", "f(BackingKind::kFiles);\n")

    def test_are_not_told_apart_elsewhere_in_the_library(self):
        for text in ("if (kind == BackingKind::kFiles) {}\n", "make(kFilesBacking);\n",
                     "if (options.backing == COMMPOOL_BACKING_FILES) {}\n", "Invalid(\"needs the files backing\");\n"):
            self.assert_found(1, "src/library/pool/a.cc", text)
            self.assert_found(2, "src/library/backing/backing_table.cc", "\n" + text)

    def test_may_be_taken_by_default(self):
        for path in backings.DEFAULTS:
            self.assertEqual(self.problems(path, "BackingKind kind = BackingKind::kVmm;\n"), [])

    def test_are_listed_by_no_tool(self):
        self.assert_found(2, "tools/cli/a.cc", "names = {\n{\"files\", Backing::kFiles}};\n")
        self.assertEqual(self.problems("tools/cli/a.cc", "Time(Backing::kFiles, \"files pool\");\n"), [])
