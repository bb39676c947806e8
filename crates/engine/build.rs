//! With the feature `cuda`, on x86-64 Linux: links the program to stand-ins for CUDA's libraries, so that it starts
//! without them. Elsewhere it is linked to the toolkit's own.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "cuda")]
    if std::env::var("TARGET").is_ok_and(|target| target.starts_with("x86_64") && target.contains("-linux-")) {
        cuda::stand_for_libraries();
    }
}

#[cfg(feature = "cuda")]
mod cuda {
    use std::path::{Path, PathBuf};
    use std::{env, fs};

    /// The other libraries that cudarc names to the linker, besides the driver's.
    const LIBRARIES: [&str; 4] = ["cublas", "cublasLt", "curand", "nvrtc"];
    /// Where a toolkit keeps its libraries.
    const FOLDERS: [&str; 3] = ["lib64", "lib", "targets/x86_64-linux/lib"];
    /// The variables by which cudarc finds the toolkit.
    const TOOLKIT: [&str; 4] = ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR"];

    /// Puts an archive for every library where the linker looks before it looks into the toolkit. The runtime's is the
    /// toolkit's own static one, which candle's kernels need.
    pub(super) fn stand_for_libraries() {
        println!("cargo:rerun-if-changed=cuda");
        TOOLKIT.iter().for_each(|variable| println!("cargo:rerun-if-env-changed={variable}"));
        cc::Build::new().file("cuda/libraries.c").cargo_metadata(false).compile("cuda");
        let output = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
        let archive = |name: &str| output.join(format!("lib{name}.a"));
        LIBRARIES.iter().for_each(|name| copy(&archive("cuda"), &archive(name)));
        copy(&static_runtime(), &archive("cudart"));
        println!("cargo:rustc-link-search=native={}", output.display());
    }

    fn static_runtime() -> PathBuf {
        let named = TOOLKIT.iter().filter_map(env::var_os).map(PathBuf::from);
        let toolkits: Vec<PathBuf> = named.chain(["/usr/local/cuda", "/opt/cuda"].map(PathBuf::from)).collect();
        let folders = toolkits.iter().flat_map(|toolkit| FOLDERS.map(|folder| toolkit.join(folder)));
        let files = folders.map(|folder| folder.join("libcudart_static.a"));
        files.into_iter().find(|file| file.is_file()).unwrap_or_else(|| {
            panic!("no libcudart_static.a in {toolkits:?}: CUDA_HOME names the folder of the CUDA toolkit")
        })
    }

    fn copy(from: &Path, to: &Path) {
        fs::copy(from, to)
            .unwrap_or_else(|error| panic!("cannot copy {} to {}: {error}", from.display(), to.display()));
    }
}
