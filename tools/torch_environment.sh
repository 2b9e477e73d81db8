# Where the virtual environments with PyTorch, and with the other libraries that tests need, lie; sourced by tools/setup
# and by those tests, never run.
#   COMMPOOL_TORCH       the folder with PyTorch (default ~/.cache/commpool/torch-2.15.0)
#   COMMPOOL_LIBRARIES   the one with CCCL, RMM and Numba (default ~/.cache/commpool/libraries-26.10)

readonly torch_version=2.15.0
readonly torch_packages=("torch==$torch_version" numpy mypy pytest auditwheel)
# Of one time; without what they need on a GPU alone.
readonly libraries_version=26.10
readonly libraries_packages=(
  cuda-bindings==13.5.0 cuda-core==1.2.2 cuda-pathfinder==1.9.0 librmm-cu13==26.10.0 llvmlite==0.50.0 numba==0.68.1
  numba-cuda==0.30.4 numpy==2.4.6 nvidia-cuda-cccl==13.3.5.0.6 packaging==26.3 rapids-logger==0.3.0 rmm-cu13==26.10.0
)

# Tests have no HOME.
home_folder() { echo "${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}"; }
environments_folder() { echo "${COMMPOOL_CACHE:-$(home_folder)/.cache/commpool}"; }

torch_folder() { echo "${COMMPOOL_TORCH:-$(environments_folder)/torch-$torch_version}"; }
libraries_folder() { echo "${COMMPOOL_LIBRARIES:-$(environments_folder)/libraries-$libraries_version}"; }

# have_packages FOLDER PACKAGE...: whether the environment holds all, in the versions that are named.
have_packages() {
  [[ -x $1/bin/python ]] && "$1/bin/python" - "${@:2}" <<'PYTHON'
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

have_torch() { have_packages "$1" "${torch_packages[@]}"; }
have_libraries() { have_packages "$1" "${libraries_packages[@]}"; }
