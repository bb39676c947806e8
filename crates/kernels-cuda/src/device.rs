//! Where a program's memory is and its kernels run: a card, or the processor that stands for one.

use std::sync::Arc;

use thiserror::Error;

/// An address in the device's memory; 0 is none.
pub(crate) type Address = u64;

/// What went wrong on a device.
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
        /// Bytes that were asked for.
        needed: usize,
        /// Bytes that are free.
        free: usize,
    },
    /// A call failed; the card may be gone.
    #[error("the GPU failed: {0}")]
    Failed(String),
}

/// A kernel that is ready to be launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel(pub(crate) usize);

/// How many blocks of how many threads run a kernel, and the bytes of shared memory of each block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) grid: [usize; 3],
    pub(crate) threads: u32,
    pub(crate) shared: u32,
}

/// Launches that belong together: a whole step.
pub(crate) struct Recording(pub(crate) Box<dyn std::any::Any + Send>);

/// A product of many rows in bfloat16: `to[r][i] = Σ weights[i][j] · input[r][j]`, added to what is there if `add`.
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

/// Memory and kernels. Calls are carried out in their order; only downloads wait for it.
///
/// # Safety
/// An address that [`allocate`](Device::allocate) gave is valid for that many bytes until it is freed, and nothing else
/// is there.
pub(crate) unsafe trait Device: Send + Sync {
    /// Its name, as `--device` accepts it.
    fn name(&self) -> String;

    /// Uninitialized memory, aligned to 256 bytes.
    fn allocate(&self, n_bytes: usize) -> Result<Address, DeviceError>;

    /// # Safety
    /// The address was allocated here, with this length, and is not used any more.
    unsafe fn free(&self, address: Address, n_bytes: usize);

    /// # Safety
    /// There are as many bytes at the address.
    unsafe fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Waits for everything before it.
    ///
    /// # Safety
    /// There are as many bytes at the address.
    unsafe fn download(&self, from: Address, to: &mut [u8]) -> Result<(), DeviceError>;

    /// # Safety
    /// There are as many bytes at both addresses.
    unsafe fn copy(&self, from: Address, to: Address, n_bytes: usize) -> Result<(), DeviceError>;

    /// # Safety
    /// There are as many bytes at the address.
    unsafe fn clear(&self, at: Address, n_bytes: usize) -> Result<(), DeviceError>;

    /// Memory of the host that downloads are fast into, initialized.
    fn allocate_host(&self, n_bytes: usize) -> Result<*mut u8, DeviceError>;

    /// # Safety
    /// It was allocated here, with this length, and is not used any more.
    unsafe fn free_host(&self, start: *mut u8, n_bytes: usize);

    /// Looks a kernel up by the name that it has in the sources.
    fn kernel(&self, name: &str) -> Result<Kernel, DeviceError>;

    /// # Safety
    /// The bytes are the kernel's arguments, and every address in them is valid for what the kernel does with it.
    unsafe fn launch(&self, kernel: Kernel, shape: Shape, arguments: &[u8]) -> Result<(), DeviceError>;

    /// # Safety
    /// The addresses are valid for the shapes.
    unsafe fn matmul(&self, matmul: &Matmul) -> Result<(), DeviceError>;

    /// From here on, what this thread launches is recorded in place of being carried out.
    fn begin_recording(&self) -> Result<(), DeviceError>;

    /// What was recorded, ready to be launched again and again; `None` if it cannot be.
    fn end_recording(&self) -> Result<Option<Recording>, DeviceError>;

    /// Launches everything that was recorded, with the same arguments.
    ///
    /// # Safety
    /// It was recorded on this device, and every address in it is still valid.
    unsafe fn replay(&self, recording: &Recording) -> Result<(), DeviceError>;

    /// Waits for everything before it.
    fn synchronize(&self) -> Result<(), DeviceError>;

    /// Bytes that are free, and all there are.
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

    /// Bytes that are free, and all there are.
    ///
    /// # Errors
    /// When the card does not answer.
    pub fn memory(&self) -> Result<(usize, usize), DeviceError> {
        self.0.memory()
    }
}

/// Memory of the device, freed when it is dropped.
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
        // The bytes may be gone soon, and some systems read them later.
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
