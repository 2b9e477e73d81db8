# Where the virtual environment with PyTorch lies; sourced by tools/setup and by the tests that need it, never run.
#   COMMPOOL_TORCH   its folder (default ~/.cache/commpool/torch-2.15.0)

readonly torch_version=2.15.0
readonly torch_packages=("torch==$torch_version" numpy mypy pytest auditwheel)

# Tests have no HOME.
home_folder() { echo "${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}"; }

torch_folder() { echo "${COMMPOOL_TORCH:-${COMMPOOL_CACHE:-$(home_folder)/.cache/commpool}/torch-$torch_version}"; }

# Whether the folder holds all packages, torch in that version.
have_torch() {
  [[ -x $1/bin/python ]] && "$1/bin/python" - "${torch_packages[@]}" <<'PYTHON'
import importlib.metadata
import sys

for package in sys.argv[1:]:
    name, _, version = package.partition("==")
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        sys.exit(1)
    if version and found.split("+")[0] != version:
        sys.exit(1)
PYTHON
}
