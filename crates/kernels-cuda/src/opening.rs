//! Opens devices.

use std::sync::Arc;

#[cfg(feature = "cuda")]
use crate::device::DeviceError;
use crate::device::SharedDevice;

impl SharedDevice {
    /// Opens a card.
    ///
    /// # Errors
    /// When there is no driver or no such card, or it is too old; the message says how to fix it.
    #[cfg(feature = "cuda")]
    pub fn open(ordinal: usize) -> Result<Self, DeviceError> {
        crate::nvidia::Nvidia::open(ordinal).map(|device| SharedDevice(Arc::new(device)))
    }

    /// The processor, which runs the card's kernels thread by thread: slow, but correct.
    #[cfg(feature = "host")]
    pub fn host() -> Self {
        SharedDevice(Arc::new(crate::host::Host::default()))
    }
}
