"""Source files as text in a C++ file."""

def _embedded_text(context):
    lines = [
        '#include "src/emulator/cudart/torch_operations.h"',
        "namespace commpool::internal::emulated_cudart {",
        "const EmbeddedFile kTorchSources[] = {",
    ]
    context.actions.run_shell(
        inputs = context.files.srcs,
        outputs = [context.outputs.out],
        # A literal has at most 64 KiB by the standard.
        command = "{ printf '%s\\n' " + " ".join(["'%s'" % line for line in lines]) + "; " +
                  "for file in \"$@\"; do " +
                  "printf '{\"%s\", R\"=====(' \"$file\"; cat \"$file\"; printf ')=====\"},\\n'; done; " +
                  "printf '};\\nconst size_t kTorchSourceCount = %d;\\n}  // namespace\\n' $#; } > " +
                  context.outputs.out.path,
        arguments = [file.path for file in context.files.srcs],
    )

embedded_text = rule(
    implementation = _embedded_text,
    attrs = {
        "srcs": attr.label_list(allow_files = True),
        "out": attr.output(mandatory = True),
    },
)
