//! Opens the device that a user asked for, or says what to do if it is unavailable.

use candle_core::{Device, DeviceLocation};
use hone_kernels::platform::{InstructionSet, Kernels};

use crate::backend::{BackendError, DeviceChoice};

/// Opens a device.
///
/// # Errors
/// When this binary was not built for it, or the machine does not have it; the message says what to do.
pub(in crate::backend) fn open_device(choice: DeviceChoice) -> Result<Device, BackendError> {
    match choice {
        DeviceChoice::Cpu => Ok(Device::Cpu),
        DeviceChoice::Cuda(ordinal) => open_cuda(ordinal),
        DeviceChoice::Metal => open_metal(),
        DeviceChoice::Auto => Ok(open_fastest()),
    }
}

/// Refuses the processor where candle's products would crash the process: those for 64-bit ARM use `sdot` without
/// checking whether the processor has it (`quantized/neon.rs` of candle-core 0.11.1).
///
/// # Errors
/// On an ARM processor without `dotprod`; the message says what to do.
pub(super) fn check_products(device: &Device) -> Result<(), BackendError> {
    let has_products = cfg!(not(target_arch = "aarch64")) || Kernels::of(InstructionSet::NeonDotprod).is_some();
    match has_products || !device.is_cpu() {
        true => Ok(()),
        false => {
            let reason = "the candle backend needs dotprod, which this processor does not have: use --backend native";
            Err(BackendError::Device(reason.into()))
        }
    }
}

/// The first device that this binary was built for and that opens. A device that fails to open is reported, because the
/// processor is a much slower substitute.
fn open_fastest() -> Device {
    let cuda = cfg!(feature = "cuda").then(|| open_cuda(0));
    let metal = cfg!(feature = "metal").then(open_metal);
    let opened = [cuda, metal].into_iter().flatten().inspect(|opened| {
        if let Err(error) = opened {
            tracing::warn!("{error}");
        }
    });
    opened.flatten().next().unwrap_or(Device::Cpu)
}

/// The name of an open device, as accepted by `--device`.
pub(in crate::backend) fn device_name(device: &Device) -> String {
    match device.location() {
        DeviceLocation::Cpu => "cpu".to_owned(),
        DeviceLocation::Cuda { gpu_id } => format!("cuda:{gpu_id}"),
        DeviceLocation::Metal { .. } => "metal".to_owned(),
    }
}

fn open_cuda(ordinal: usize) -> Result<Device, BackendError> {
    if !cfg!(feature = "cuda") {
        return Err(not_built_for("CUDA", "cuda"));
    }
    Device::new_cuda(ordinal).map_err(|error| no_cuda(ordinal, &error.to_string()))
}

/// The meaning of CUDA library statuses for the reader. Statuses for missing libraries come from `cuda/libraries.c`.
const CUDA_PROBLEMS: [(&str, &str); 5] = [
    ("CUDA_ERROR_STUB_LIBRARY", "NVIDIA's driver is not installed (libcuda.so.1): install it"),
    ("CUDA_ERROR_NO_DEVICE", "the driver finds no card: check it with `nvidia-smi`"),
    ("CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", "NVIDIA's driver is too old: install a newer one"),
    (
        "CUBLAS_STATUS_NOT_INITIALIZED",
        "CUDA's cuBLAS (libcublas.so.13) does not start: install it, or name its folder in LD_LIBRARY_PATH",
    ),
    (
        "CURAND_STATUS_NOT_INITIALIZED",
        "CUDA's cuRAND (libcurand.so.10) does not start: install it, or name its folder in LD_LIBRARY_PATH",
    ),
];

pub(in crate::backend) fn no_cuda(ordinal: usize, error: &str) -> BackendError {
    let known = CUDA_PROBLEMS.iter().find(|(status, _)| error.contains(status)).map(|(_, meaning)| *meaning);
    let reason = known.unwrap_or_else(|| error.lines().next().unwrap_or_default());
    BackendError::Device(format!("cannot open CUDA device {ordinal}: {reason}, or use --device cpu"))
}

fn open_metal() -> Result<Device, BackendError> {
    if !cfg!(feature = "metal") {
        return Err(not_built_for("Metal", "metal"));
    }
    Device::new_metal(0).map_err(|error| {
        let reason = error.to_string();
        let reason = reason.lines().next().unwrap_or_default();
        BackendError::Device(format!("cannot open the Metal device ({reason}): use --device cpu"))
    })
}

fn not_built_for(name: &str, feature: &str) -> BackendError {
    BackendError::Device(format!(
        "this binary was built without {name}: build it with `cargo build --release --features {feature}`, or use \
         --device cpu"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: &str, expected: &str) {
        assert_eq!(
            no_cuda(0, error).to_string(),
            format!("cannot open CUDA device 0: {expected}, or use --device cpu")
        );
    }

    #[test]
    fn a_card_that_does_not_open_is_explained() {
        let missing = r#"DriverError(CUDA_ERROR_STUB_LIBRARY, "<Failure when calling cuGetErrorString()>")"#;
        check(missing, "NVIDIA's driver is not installed (libcuda.so.1): install it");
        check("a new error\n  at line 3", "a new error");
    }
}
