//! The device that holds a program's memory and runs its kernels: a card, or the processor in its place.

use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;

/// An address in the device's memory; 0 means no address.
pub(crate) type Address = u64;

/// A failure of a device.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DeviceError {
    /// No card can be used.
    #[error("{0}")]
    Unavailable(String),
    /// The card's memory is full.
    #[error(
        "the GPU's memory is full: {} MB were needed and {} MB are free; a smaller model, a shorter context \
         (`engine.context`) or `--device cpu` needs less",
        needed / 1_000_000,
        free / 1_000_000
    )]
    OutOfMemory {
        /// Requested bytes.
        needed: usize,
        /// Free bytes.
        free: usize,
    },
    /// A call failed; the card may be gone.
    #[error("the GPU failed: {0}")]
    Failed(String),
}

/// A kernel that is ready to be launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel(pub(crate) usize);

/// The launch dimensions of a kernel: blocks, threads of a block, and bytes of shared memory of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) grid: [usize; 3],
    pub(crate) threads: u32,
    pub(crate) shared: u32,
}

/// Launches that are replayed together: a whole step.
pub(crate) struct Recording(pub(crate) Box<dyn std::any::Any + Send>);

/// A product of many rows in bfloat16: `to[r][i] = Σ weights[i][j] · input[r][j]`, added to the existing values if
/// `add`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matmul {
    pub(crate) weights: Address,
    pub(crate) input: Address,
    pub(crate) to: Address,
    /// Floats from one row of the result to the next.
    pub(crate) to_stride: usize,
    pub(crate) n_rows: usize,
    pub(crate) n_out: usize,
    pub(crate) n_columns: usize,
    pub(crate) add: bool,
}

/// Memory and kernels. Calls are executed in order; only downloads wait for them.
///
/// # Safety
/// An address returned by [`allocate`](Device::allocate) is valid for that many bytes until it is freed, and the memory
/// has no other use.
pub(crate) unsafe trait Device: Send + Sync {
    /// Its name, as `--device` accepts it.
    fn name(&self) -> String;

    /// The product that it is.
    fn product_name(&self) -> String;

    /// Uninitialized memory, aligned to 256 bytes.
    fn allocate(&self, n_bytes: usize) -> Result<Address, DeviceError>;

    /// # Safety
    /// The address was allocated here, with this length, and is no longer used.
    unsafe fn free(&self, address: Address, n_bytes: usize);

    /// # Safety
    /// `to` is valid for writes of `bytes.len()` bytes.
    unsafe fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Waits for all earlier calls.
    ///
    /// # Safety
    /// `from` is valid for reads of `to.len()` bytes.
    unsafe fn download(&self, from: Address, to: &mut [u8]) -> Result<(), DeviceError>;

    /// # Safety
    /// Both addresses are valid for `n_bytes` bytes.
    unsafe fn copy(&self, from: Address, to: Address, n_bytes: usize) -> Result<(), DeviceError>;

    /// # Safety
    /// `at` is valid for writes of `n_bytes` bytes.
    unsafe fn clear(&self, at: Address, n_bytes: usize) -> Result<(), DeviceError>;

    /// Initialized host memory for fast downloads.
    fn allocate_host(&self, n_bytes: usize) -> Result<*mut u8, DeviceError>;

    /// # Safety
    /// It was allocated here, with this length, and is no longer used.
    unsafe fn free_host(&self, start: *mut u8, n_bytes: usize);

    /// Looks up a kernel by its name in the sources.
    fn kernel(&self, name: &str) -> Result<Kernel, DeviceError>;

    /// # Safety
    /// The bytes are the kernel's arguments, and every address in them is valid for the kernel's use of it.
    unsafe fn launch(&self, kernel: Kernel, shape: Shape, arguments: &[u8]) -> Result<(), DeviceError>;

    /// # Safety
    /// The addresses are valid for the shapes.
    unsafe fn matmul(&self, matmul: &Matmul) -> Result<(), DeviceError>;

    /// From here on, this thread's launches are recorded instead of executed.
    fn begin_recording(&self) -> Result<(), DeviceError>;

    /// The recording, ready to be launched repeatedly; `None` if it cannot be.
    fn end_recording(&self) -> Result<Option<Recording>, DeviceError>;

    /// Launches everything that was recorded, with the same arguments.
    ///
    /// # Safety
    /// It was recorded on this device, and every address in it is still valid.
    unsafe fn replay(&self, recording: &Recording) -> Result<(), DeviceError>;

    /// Waits for all earlier calls.
    fn synchronize(&self) -> Result<(), DeviceError>;

    /// Free and total bytes.
    fn memory(&self) -> Result<(usize, usize), DeviceError>;
}

/// A device that several models share.
#[derive(Clone)]
pub struct SharedDevice(pub(crate) Arc<dyn Device>);

impl SharedDevice {
    /// Its name, as `--device` accepts it.
    pub fn name(&self) -> String {
        self.0.name()
    }

    /// The product that it is, such as "NVIDIA H200".
    pub fn product_name(&self) -> String {
        self.0.product_name()
    }

    /// The speed at which its memory is read, in bytes per second: the fastest of a few copies of `n_bytes` bytes, which
    /// should be more than its caches hold. A copy reads and writes; both count.
    ///
    /// # Errors
    /// When twice as many bytes are not free.
    pub fn measure_bandwidth(&self, n_bytes: usize) -> Result<f64, DeviceError> {
        const COPIES: usize = 8;
        let [from, to] = [Buffer::zeroed(self, n_bytes)?, Buffer::zeroed(self, n_bytes)?];
        let copy = || {
            self.0.synchronize()?;
            let start = Instant::now();
            // SAFETY: both buffers have as many bytes.
            unsafe { self.0.copy(from.address(), to.address(), n_bytes)? };
            self.0.synchronize()?;
            Ok(start.elapsed())
        };
        let times = (0..COPIES).map(|_| copy()).collect::<Result<Vec<Duration>, DeviceError>>()?;
        let fastest = times.into_iter().min().unwrap_or_default().max(Duration::from_nanos(1));
        Ok((2 * n_bytes) as f64 / fastest.as_secs_f64())
    }

    /// Free and total bytes.
    ///
    /// # Errors
    /// When the card does not answer.
    pub fn memory(&self) -> Result<(usize, usize), DeviceError> {
        self.0.memory()
    }
}

/// Device memory, freed when it is dropped.
pub(crate) struct Buffer {
    device: SharedDevice,
    address: Address,
    n_bytes: usize,
}

impl Buffer {
    /// Uninitialized memory.
    pub(crate) fn new(device: &SharedDevice, n_bytes: usize) -> Result<Self, DeviceError> {
        let address = if n_bytes == 0 { 0 } else { device.0.allocate(n_bytes)? };
        Ok(Buffer { device: device.clone(), address, n_bytes })
    }

    pub(crate) fn from_bytes(device: &SharedDevice, bytes: &[u8]) -> Result<Self, DeviceError> {
        let buffer = Buffer::new(device, bytes.len())?;
        buffer.upload(0, bytes)?;
        // The bytes may be freed soon, and some systems read them later.
        device.0.synchronize()?;
        Ok(buffer)
    }

    pub(crate) fn zeroed(device: &SharedDevice, n_bytes: usize) -> Result<Self, DeviceError> {
        let buffer = Buffer::new(device, n_bytes)?;
        if n_bytes > 0 {
            // SAFETY: the buffer has as many bytes.
            unsafe { device.0.clear(buffer.address, n_bytes)? };
        }
        Ok(buffer)
    }

    pub(crate) fn address(&self) -> Address {
        self.address
    }

    pub(crate) fn n_bytes(&self) -> usize {
        self.n_bytes
    }

    pub(crate) fn upload(&self, offset: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        self.check(offset, bytes.len());
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: within the buffer.
        unsafe { self.device.0.upload(self.address + offset as u64, bytes) }
    }

    pub(crate) fn download(&self, offset: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        self.check(offset, to.len());
        if to.is_empty() {
            return Ok(());
        }
        // SAFETY: within the buffer.
        unsafe { self.device.0.download(self.address + offset as u64, to) }
    }

    fn check(&self, offset: usize, n_bytes: usize) {
        assert!(offset.checked_add(n_bytes).is_some_and(|end| end <= self.n_bytes), "within the buffer");
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.n_bytes > 0 {
            // SAFETY: allocated by `new`, with this length, and no one else has the address.
            unsafe { self.device.0.free(self.address, self.n_bytes) }
        }
    }
}
