//! Compiles the kernels: for cards with the feature `cuda`, for the processor with the feature `host`.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

/// The compute capabilities (without the point) covered by a portable binary. Newer cards compile the last one's PTX
/// when they load it.
const CAPABILITIES: [u32; 4] = [80, 86, 89, 90];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=cuda");
    if env::var_os("CARGO_FEATURE_HOST").is_some() {
        compile_for_processor();
    }
    if env::var_os("CARGO_FEATURE_CUDA").is_some() {
        compile_for_cards();
    }
}

fn compile_for_processor() {
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .debug(false)
        .flag_if_supported("-Wno-unknown-pragmas")
        .file("cuda/host.cpp")
        .compile("hone_kernels_host");
}

fn compile_for_cards() {
    println!("cargo:rerun-if-env-changed=CUDA_COMPUTE_CAP");
    println!("cargo:rerun-if-env-changed=CUDA_HOME");
    let output = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("kernels.fatbin");
    let only = env::var("CUDA_COMPUTE_CAP").ok().map(|capability| {
        capability.parse().unwrap_or_else(|_| panic!("CUDA_COMPUTE_CAP is {capability:?}: expected a number like 90"))
    });
    let capabilities = only.map_or(CAPABILITIES.to_vec(), |only| vec![only]);
    let newest = *capabilities.last().expect("there are some");
    let code = |capability: u32| format!("-gencode=arch=compute_{capability},code=sm_{capability}");
    let status = Command::new(nvcc())
        .args(["-fatbin", "-std=c++17", "-O3", "--threads=0", "--compress-mode=size"])
        .args(capabilities.iter().map(|capability| code(*capability)))
        .arg(format!("-gencode=arch=compute_{newest},code=compute_{newest}"))
        .arg("-o")
        .arg(&output)
        .arg("cuda/kernels.cu")
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("nvcc failed ({status})"),
        Err(error) => panic!("nvcc does not start ({error}): CUDA_HOME names the folder of the CUDA toolkit"),
    }
    assert!(fs::metadata(&output).is_ok_and(|file| file.len() > 0), "nvcc wrote kernels");
}

fn nvcc() -> PathBuf {
    let named = ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"].iter().filter_map(env::var_os).map(PathBuf::from);
    let folders = named.chain(["/usr/local/cuda", "/opt/cuda"].map(PathBuf::from));
    let installed = folders.map(|folder| folder.join("bin/nvcc")).find(|file| file.is_file());
    installed.unwrap_or_else(|| "nvcc".into())
}
