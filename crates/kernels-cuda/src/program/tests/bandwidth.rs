//! The speed of a device's memory.

use crate::device::SharedDevice;

#[test]
fn a_devices_memory_is_measured_with_copies() {
    let device = SharedDevice::host();
    let bytes_per_second = device.measure_bandwidth(16 << 20).unwrap();
    assert!((1e8..1e14).contains(&bytes_per_second), "{bytes_per_second}");
    assert!(!device.product_name().is_empty());
}
