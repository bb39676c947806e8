//! Host memory that the device copies into at full speed.

use crate::device::{DeviceError, SharedDevice};

/// Bytes that grow on demand. On a card they are pinned.
pub(crate) struct HostMemory {
    device: SharedDevice,
    start: *mut u8,
    n_bytes: usize,
}

// SAFETY: it owns its memory.
unsafe impl Send for HostMemory {}

impl HostMemory {
    pub(crate) fn new(device: &SharedDevice) -> Self {
        HostMemory { device: device.clone(), start: std::ptr::NonNull::<u64>::dangling().as_ptr().cast(), n_bytes: 0 }
    }

    /// Makes room for `n_bytes` bytes with arbitrary content.
    pub(crate) fn reserve(&mut self, n_bytes: usize) -> Result<&mut [u8], DeviceError> {
        if n_bytes > self.n_bytes {
            self.free();
            let n_bytes = n_bytes.next_power_of_two();
            self.start = self.device.0.allocate_host(n_bytes)?;
            self.n_bytes = n_bytes;
        }
        // SAFETY: allocated with at least as many bytes, which are initialized.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.start, n_bytes) })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: allocated with as many bytes, which are initialized.
        unsafe { std::slice::from_raw_parts(self.start, self.n_bytes) }
    }

    fn free(&mut self) {
        if self.n_bytes > 0 {
            // SAFETY: allocated with this length, and not used after this.
            unsafe { self.device.0.free_host(self.start, self.n_bytes) }
            self.n_bytes = 0;
        }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        self.free();
    }
}
