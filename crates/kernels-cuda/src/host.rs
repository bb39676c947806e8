//! The processor in place of a card: the same sources, compiled as C++, with every thread of a block as a fiber.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use half::bf16;

use crate::device::{Address, Device, DeviceError, Kernel, Matmul, Recording, Shape};

// SAFETY: as declared in cuda/platform.h.
unsafe extern "C" {
    fn hone_host_launch(
        name: *const c_char,
        arguments: *const c_void,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        threads: u32,
        shared: u32,
    ) -> c_int;
}

/// Names of the kernels looked up so far; a `Kernel` is an index into it.
static NAMES: Mutex<Vec<CString>> = Mutex::new(Vec::new());
/// The emulation runs one launch at a time.
static RUNNING: Mutex<()> = Mutex::new(());

#[derive(Default)]
pub(crate) struct Host {
    /// The launches recorded so far, while recording.
    recorded: Mutex<Option<Vec<Launch>>>,
}

/// A launch and its arguments.
struct Launch {
    kernel: Kernel,
    shape: Shape,
    arguments: Vec<u8>,
}

fn layout(n_bytes: usize) -> Layout {
    Layout::from_size_align(n_bytes, 256).expect("the size fits the address space")
}

// SAFETY: memory comes from the allocator, and is returned to it when it is freed.
unsafe impl Device for Host {
    fn name(&self) -> String {
        "host".to_owned()
    }

    fn product_name(&self) -> String {
        "this machine's processor".to_owned()
    }

    /// Poisons the memory, so that a kernel that reads unwritten bytes is found out.
    fn allocate(&self, n_bytes: usize) -> Result<Address, DeviceError> {
        // SAFETY: the layout is not empty, because buffers of no bytes are not allocated.
        let memory = unsafe { alloc(layout(n_bytes)) };
        assert!(!memory.is_null(), "the allocator has memory");
        // SAFETY: just allocated.
        unsafe { memory.write_bytes(0xff, n_bytes) };
        Ok(memory as u64)
    }

    unsafe fn free(&self, address: Address, n_bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { dealloc(address as *mut u8, layout(n_bytes)) }
    }

    unsafe fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { (to as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    unsafe fn download(&self, from: Address, to: &mut [u8]) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { (from as *const u8).copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    unsafe fn copy(&self, from: Address, to: Address, n_bytes: usize) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { (from as *const u8).copy_to(to as *mut u8, n_bytes) };
        Ok(())
    }

    unsafe fn clear(&self, at: Address, n_bytes: usize) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { (at as *mut u8).write_bytes(0, n_bytes) };
        Ok(())
    }

    fn allocate_host(&self, n_bytes: usize) -> Result<*mut u8, DeviceError> {
        self.allocate(n_bytes).map(|address| address as *mut u8)
    }

    unsafe fn free_host(&self, start: *mut u8, n_bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.free(start as Address, n_bytes) }
    }

    fn kernel(&self, name: &str) -> Result<Kernel, DeviceError> {
        let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        let index = names.iter().position(|known| known.to_bytes() == name.as_bytes());
        Ok(Kernel(index.unwrap_or_else(|| {
            names.push(CString::new(name).expect("a name of a kernel"));
            names.len() - 1
        })))
    }

    unsafe fn launch(&self, kernel: Kernel, shape: Shape, arguments: &[u8]) -> Result<(), DeviceError> {
        if let Some(recorded) = &mut *self.recorded.lock().unwrap_or_else(PoisonError::into_inner) {
            recorded.push(Launch { kernel, shape, arguments: arguments.to_vec() });
            return Ok(());
        }
        let name: CString = NAMES.lock().unwrap_or_else(PoisonError::into_inner)[kernel.0].clone();
        let _running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let [x, y, z] = shape.grid.map(|n| n as u32);
        // Arguments need the alignment of their fields.
        let mut aligned = vec![0u64; arguments.len().div_ceil(8)];
        bytemuck::cast_slice_mut::<u64, u8>(&mut aligned)[..arguments.len()].copy_from_slice(arguments);
        // SAFETY: the caller's promise.
        let status =
            unsafe { hone_host_launch(name.as_ptr(), aligned.as_ptr().cast(), x, y, z, shape.threads, shape.shared) };
        if status != 0 {
            return Err(DeviceError::Failed(format!("no kernel {:?}", CStr::to_string_lossy(&name))));
        }
        Ok(())
    }

    unsafe fn matmul(&self, matmul: &Matmul) -> Result<(), DeviceError> {
        let &Matmul { weights, input, to, to_stride, n_rows, n_out, n_columns, add } = matmul;
        // SAFETY: the caller's promise.
        let (weights, input) = unsafe {
            (
                std::slice::from_raw_parts(weights as *const bf16, n_out * n_columns),
                std::slice::from_raw_parts(input as *const bf16, n_rows * n_columns),
            )
        };
        for (row, input) in input.chunks_exact(n_columns).enumerate() {
            for (index, weights) in weights.chunks_exact(n_columns).enumerate() {
                let products = std::iter::zip(input, weights).map(|(x, w)| x.to_f32() * w.to_f32());
                // SAFETY: the caller's promise.
                let to = unsafe { &mut *(to as *mut f32).add(row * to_stride + index) };
                let sum: f32 = products.sum();
                *to = if add { *to + sum } else { sum };
            }
        }
        Ok(())
    }

    fn begin_recording(&self) -> Result<(), DeviceError> {
        *self.recorded.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
        Ok(())
    }

    fn end_recording(&self) -> Result<Option<Recording>, DeviceError> {
        let recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(recorded.map(|launches| Recording(Box::new(launches))))
    }

    unsafe fn replay(&self, recording: &Recording) -> Result<(), DeviceError> {
        let launches = recording.0.downcast_ref::<Vec<Launch>>().expect("it was recorded here");
        for Launch { kernel, shape, arguments } in launches {
            // SAFETY: the caller's promise.
            unsafe { self.launch(*kernel, *shape, arguments)? };
        }
        Ok(())
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn memory(&self) -> Result<(usize, usize), DeviceError> {
        Ok((8 << 30, 8 << 30))
    }
}
