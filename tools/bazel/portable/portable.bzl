"""Libraries and programs that load on older systems than the one that built them: glibc 2.28, libstdc++ of GCC 8.

The compiler and its headers stay this system's. Only the linker sees older ones: for each system library a stand-in,
made from the library itself, which offers the variants of symbols that the older system has. Not under the sanitizers,
which bring runtimes of their own.
"""

_HERE = "//tools/bazel/portable:"
_STAND_INS = ["libstdc++.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "libc.so.6"]

def stand_in(library, limits, newer = "keep", made_from = None):
    """A shared library to link against in place of the system's.

    Args:
      library: its file name.
      limits: the newest version nodes to take, NODE=VERSION each.
      newer: what to do with symbols that came later, or that moved: see make_stub.py.
      made_from: the library that has its symbols today, where that is another.
    """
    link = "$(CC) -shared -nostdlib -Wl,-soname,{} -o $@".format(library)
    command = "\n".join([
        "work=$$(mktemp -d)",
        "python3 $(location make_stub.py) $$($(CC) -print-file-name={}) $$work/a.s $$work/a.map {} {}".format(
            made_from or library,
            newer,
            " ".join(limits),
        ),
        link + " -Wl,--version-script,$$work/a.map $$work/a.s",
        "rm -r $$work",
    ])
    native.genrule(
        name = "stand_in_" + library,
        srcs = ["make_stub.py"],
        outs = ["older/" + library],
        cmd_bash = command,
        toolchains = ["@bazel_tools//tools/cpp:current_cc_toolchain"],
        visibility = ["//visibility:public"],
    )

def _unless_sanitized(portable):
    return select({
        _HERE + "address_sanitizer": [],
        _HERE + "thread_sanitizer": [],
        "//conditions:default": portable,
    })

def portable_binary(
        name,
        deps = [],
        linkopts = [],
        additional_linker_inputs = [],
        linkshared = False,
        undefined = "refuse",
        **attributes):
    """A cc_binary that loads on glibc 2.28.

    Args:
      name: as of cc_binary, like all others.
      deps: libraries.
      linkopts: before those that make it portable.
      additional_linker_inputs: files that linkopts name.
      linkshared: whether it is a library.
      undefined: "allow" for a library that leaves symbols to the program that opens it.
      **attributes: as of cc_binary.
    """
    files = ["{}older/{}".format(_HERE, library) for library in _STAND_INS]
    options = ["$(location {})".format(file) for file in files]
    files.append(_HERE + "folding.txt")
    # Symbols that the stand-in of libstdc++ lacks are taken from the archive.
    options.insert(1, "-l:libstdc++.a")
    options.append("-Wl,--exclude-libs,libstdc++.a")
    options.append("@$(location {}folding.txt)".format(_HERE))

    # System libraries that are linked besides may ask for newer symbols: they are not this system's when it runs.
    options += ["-Wl,--no-undefined"] if undefined == "refuse" else []
    options.append("-Wl,--allow-shlib-undefined")
    objects = [_HERE + "newer_functions"]
    if not linkshared:
        objects.append(_HERE + "older_start")
        options.append("-Wl,--wrap=__libc_start_main")
    native.cc_binary(
        name = name,
        deps = deps + _unless_sanitized(objects),
        linkopts = linkopts + _unless_sanitized(options),
        additional_linker_inputs = additional_linker_inputs + _unless_sanitized(files),
        linkshared = linkshared,
        **attributes
    )
