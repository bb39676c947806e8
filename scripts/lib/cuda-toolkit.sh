# shellcheck shell=bash
# Sourced by what builds hone with CUDA on a machine that has neither a GPU nor a CUDA toolkit.

# use_cuda_toolkit: leaves the compiler from PyPI in target/cuda-toolkit (a quarter of a gigabyte), and makes cargo and CMake
# use it. CUDA_COMPUTE_CAP says for which cards (90: H100, H200).
use_cuda_toolkit() {
    local toolkit=$PWD/target/cuda-toolkit part packages=()
    # The newest that cudarc accepts and the drivers of this year run.
    local version='13.0.*'
    if [ ! -x "$toolkit/nvidia/cu13/bin/nvcc" ]; then
        for part in nvidia-cuda-nvcc nvidia-cuda-crt nvidia-nvvm nvidia-cuda-runtime nvidia-cuda-cccl; do
            packages+=("$part==$version")
        done
        python3 -m pip install --quiet --disable-pip-version-check --target "$toolkit" "${packages[@]}"
        # Where the compiler looks for its runtime.
        ln -sfn lib "$toolkit/nvidia/cu13/lib64"
    fi
    export CUDA_HOME=$toolkit/nvidia/cu13
    export PATH=$CUDA_HOME/bin:$PATH
    export CUDA_COMPUTE_CAP=${CUDA_COMPUTE_CAP:-90}
}

# use_cublas: what else llama.cpp is linked to, in target/cuda-cublas: NVIDIA's library from PyPI (a gigabyte), and a library
# in place of the driver's that has its functions' names. Sets $cublas_options for CMake.
use_cublas() {
    local folder=$PWD/target/cuda-cublas
    if [ ! -d "$folder/nvidia" ]; then
        python3 -m pip install --quiet --disable-pip-version-check --no-deps --target "$folder" 'nvidia-cublas==13.0.*'
    fi
    printf 'int %s(void) { return 34; }\n' cu{DeviceGet,DeviceGetAttribute,GetErrorString} \
        cuMem{AddressFree,AddressReserve,Create,GetAllocationGranularity,Map,Release,SetAccess,Unmap} >"$folder/driver.c"
    cc -shared -fPIC -Wl,-soname,libcuda.so.1 "$folder/driver.c" -o "$folder/libcuda.so"
    # shellcheck disable=SC2034
    cublas_options=(-DCUDA_cublas_LIBRARY="$folder/nvidia/cu13/lib/libcublas.so.13" -DCUDA_cuda_driver_LIBRARY="$folder/libcuda.so"
        -DCUDA_CUDART="$CUDA_HOME/lib/libcudart_static.a" -DCUDA_cudart_LIBRARY="$CUDA_HOME/lib/libcudart_static.a"
        -DCMAKE_CUDA_FLAGS="-I$folder/nvidia/cu13/include" -DCMAKE_CXX_FLAGS="-I$folder/nvidia/cu13/include")
}
