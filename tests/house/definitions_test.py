"""Planted definitions: two of one name are found, and what may stand twice passes."""

import definitions
import planted


class Definitions(planted.PlantedTest):

    def problems(self, *texts):
        return definitions.problems(self.planted({f"src/{number}.h": text for number, text in enumerate(texts)}))

    def assert_found(self, name, *texts):
        self.assertEqual(self.problems(*texts), [f"{name} is defined in src/0.h and src/1.h"])

    def test_an_enumeration_and_a_struct_of_one_name_are_found(self):
        self.assert_found("a::b::C", "namespace a::b {\nenum class C { kD };\n}\n",
                          "namespace a {\ninline constexpr int kE = 1;\nnamespace b {\nstruct C {};\n}\n}\n")

    def test_types_aliases_and_constants_are_seen(self):
        self.assert_found("A", "struct A { int a; };\n", "using A = int;\n")
        self.assert_found("A", "class MACRO(\"a\") A final : public B {\n};\n", "union A { int a; };\n")
        self.assert_found("kA", "inline constexpr int kA = 1;\n", "constexpr std::array<int, 2> kA{1, 2};\n")
        self.assert_found("A", "extern \"C\" {\ntypedef struct A {\n} A;\n}\n", "template <typename T>\nclass A {};\n")

    def test_another_name_space_or_none_of_a_name_is_fine(self):
        of_c, of_nobody = "namespace c {\nstruct A {};\n}\n", "namespace {\nstruct A {};\n}\n"
        self.assertEqual(self.problems("struct A {};\n", of_c, of_nobody, of_nobody), [])

    def test_what_lies_in_a_type_or_a_function_is_fine(self):
        self.assertEqual(self.problems("struct A {\n  struct Part {};\n};\n", "struct B {\n  struct Part {};\n};\n",
                                       "void F() {\n  struct Part {};\n}\n", "// struct Part {};\n"), [])

    def test_a_declaration_a_specialisation_and_a_function_define_no_type(self):
        self.assertEqual(self.problems("struct A {};\nstruct B;\n", "struct A;\nstruct B f(struct A);\n",
                                       "template <>\nstruct A<int> {};\n", "struct A g() { return {}; }\n"), [])
