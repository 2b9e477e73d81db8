"""Planted violations: what the check of the exported symbols finds."""

import unittest

import symbols

HEADER = """
#define COMMPOOL_API __attribute__((visibility("default")))
/* commpool_mentioned() is only spoken of. */
typedef void (*commpool_callback)(void* context);
COMMPOOL_API const char* commpool_last_error(void);
COMMPOOL_API commpool_status commpool_pool_allocate(commpool_pool pool, uint64_t bytes,
                                                    void** pointer);
"""
NM = "0000000000001100 T commpool_last_error\n0000000000001200 T commpool_pool_allocate@@COMMPOOL_1\n"
READELF = " 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]\n"


class Symbols(unittest.TestCase):

    def problems(self, nm=NM, readelf=READELF):
        return symbols.problems(symbols.exported(nm), symbols.needed(readelf), symbols.declared(HEADER))

    def test_the_c_abi_alone_is_fine(self):
        self.assertEqual(self.problems("0000000000000000 A COMMPOOL_1\n" + NM), [])

    def test_a_symbol_too_many_is_found(self):
        self.assertEqual(self.problems(NM + "0000000000001300 W _ZNSt6vectorIiE4pushEv\n"),
                         ["_ZNSt6vectorIiE4pushEv is exported, and no function of commpool.h"])

    def test_what_the_adapters_read_has_a_version_of_its_own(self):
        flag = "0000000000001300 D commpool_open_scopes@@"
        self.assertEqual(self.problems(NM + flag + "COMMPOOL_PRIVATE\n"), [])
        for version, wrong in [("COMMPOOL_PRIVATE", 0), ("COMMPOOL_1", 1)]:
            found = symbols.version_problems(symbols.versions(flag + version), symbols.OF_ADAPTERS_BY_VERSION)
            self.assertEqual(len(list(found)), wrong, version)

    def test_a_missing_function_is_found(self):
        self.assertIn("commpool_pool_allocate is declared", self.problems(NM.splitlines()[0])[0])

    def test_a_function_under_another_version_is_found(self):
        found = symbols.versions(NM)
        self.assertEqual(found["commpool_pool_allocate"], "COMMPOOL_1")
        self.assertEqual(list(symbols.version_problems(found, {"COMMPOOL_1": {"commpool_pool_allocate"}})), [])
        for version, name in [("COMMPOOL_2", "commpool_pool_allocate"), ("COMMPOOL_1", "commpool_last_error"),
                              ("COMMPOOL_1", "commpool_gone")]:
            problems = list(symbols.version_problems(found, {version: {name}}))
            self.assertEqual(len(problems), 1, problems)
            self.assertIn(f"{name} is exported as of", problems[0])

    def test_the_name_that_programs_load_is_read(self):
        line = " 0x000000000000000e (SONAME)             Library soname: [libcommpool.so.0]"
        self.assertEqual(symbols.shared_name(READELF + line), "libcommpool.so.0")

    def test_a_linked_driver_is_found(self):
        for name in ["libcuda.so.1", "libcudart.so.13", "libnccl.so.2"]:
            self.assertIn(name, self.problems(readelf=READELF.replace("libc.so.6", name))[0])
