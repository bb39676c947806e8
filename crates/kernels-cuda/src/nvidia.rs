//! A card, through NVIDIA's driver.
//!
//! Everything goes to one stream, so that it runs in the order of the calls, whichever thread they come from. cuBLAS
//! multiplies many rows; without it, our own kernel does.

use std::collections::HashMap;
use std::ffi::{CString, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;

use cudarc::cublas::{result as blas, sys as blas_sys};
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::{CudaContext, CudaGraph, CudaStream, sys};

use crate::arguments::MatmulArguments;
use crate::device::{Address, Device, DeviceError, Kernel, Matmul, Recording, Shape};

/// Kernels for every kind of card that this binary was built for.
#[repr(C, align(64))]
struct Image<T: ?Sized>(T);

static KERNELS: &Image<[u8]> = &Image(*include_bytes!(concat!(env!("OUT_DIR"), "/kernels.fatbin")));

pub(crate) struct Nvidia {
    ordinal: usize,
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    /// The stream on which launches are recorded, separate from concurrent uploads of other threads.
    recorder: Arc<CudaStream>,
    /// Whether kernels may start while the one before them still runs.
    starts_early: bool,
    /// The thread that records.
    recording: Mutex<Option<ThreadId>>,
    module: sys::CUmodule,
    kernels: Mutex<Functions>,
    blas: Option<Mutex<Blas>>,
}

#[derive(Default)]
struct Functions {
    by_name: HashMap<String, Kernel>,
    functions: Vec<sys::CUfunction>,
}

struct Graph(CudaGraph);

// SAFETY: a graph is used by one thread at a time.
unsafe impl Send for Graph {}

struct Blas(blas_sys::cublasHandle_t);

// SAFETY: the handles belong to the context, which any thread may use once it is bound; cuBLAS' handle is used by one
// thread at a time.
unsafe impl Send for Nvidia {}
// SAFETY: as above.
unsafe impl Sync for Nvidia {}
// SAFETY: as above.
unsafe impl Send for Blas {}

fn unavailable(error: impl std::fmt::Display) -> DeviceError {
    DeviceError::Unavailable(error.to_string())
}

fn failed(error: DriverError) -> DeviceError {
    DeviceError::Failed(error.to_string())
}

impl Nvidia {
    pub(crate) fn open(ordinal: usize) -> Result<Self, DeviceError> {
        let context = CudaContext::new(ordinal).map_err(unavailable)?;
        let stream = context.new_stream().map_err(unavailable)?;
        let recorder = context.new_stream().map_err(unavailable)?;
        // SAFETY: the image is a fat binary, aligned, and lives as long as the process.
        let module = unsafe { result::module::load_data(KERNELS.0.as_ptr().cast()) }.map_err(|error| {
            let (major, minor) = context.compute_capability().unwrap_or_default();
            unavailable(format!("this binary has no kernels for cards of compute capability {major}.{minor} ({error})"))
        })?;
        // Without it, our own kernel multiplies, with the same results.
        let blas = Self::open_blas(&stream).ok().map(Mutex::new);
        let starts_early = context.compute_capability().is_ok_and(|(major, _)| major >= 9);
        Ok(Nvidia {
            ordinal,
            context,
            stream,
            recorder,
            starts_early,
            recording: Mutex::default(),
            module,
            kernels: Mutex::default(),
            blas,
        })
    }

    fn open_blas(stream: &CudaStream) -> Result<Blas, blas::CublasError> {
        let handle = blas::create_handle()?;
        // SAFETY: the stream belongs to the context that the handle was created in.
        unsafe { blas::set_stream(handle, stream.cu_stream().cast())? };
        Ok(Blas(handle))
    }

    /// Makes the context current on this thread.
    fn bind(&self) -> Result<(), DeviceError> {
        self.context.bind_to_thread().map_err(failed)
    }

    /// The stream of this thread's launches.
    fn launch_stream(&self) -> sys::CUstream {
        let recording = *self.recording.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recorded = recording == Some(std::thread::current().id());
        if is_recorded { self.recorder.cu_stream() } else { self.stream.cu_stream() }
    }

    fn function(&self, kernel: Kernel) -> sys::CUfunction {
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner).functions[kernel.0]
    }

    /// Lets a kernel use all the shared memory of a multiprocessor. The split between cache and shared memory is the
    /// same for all kernels; otherwise one could not start alongside another.
    fn allow_shared(&self, function: sys::CUfunction) -> Result<(), DriverError> {
        use sys::CUfunction_attribute_enum as Attribute;
        let most =
            self.context.attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        // SAFETY: the function belongs to the loaded module.
        unsafe {
            let fixed =
                result::function::get_function_attribute(function, Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
            result::function::set_function_attribute(
                function,
                Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                most - fixed,
            )?;
            let carveout = sys::CUshared_carveout_enum::CU_SHAREDMEM_CARVEOUT_MAX_SHARED as i32;
            result::function::set_function_attribute(
                function,
                Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                carveout,
            )
        }
    }

    /// Our own product, for cards without cuBLAS.
    unsafe fn matmul_without_blas(&self, matmul: &Matmul) -> Result<(), DeviceError> {
        let arguments = MatmulArguments::from(matmul);
        let kernel = self.kernel("matmul_bf16")?;
        let shape = crate::shapes::matmul(matmul.n_rows, matmul.n_out);
        // SAFETY: the caller's promise.
        unsafe { self.launch(kernel, shape, bytemuck::bytes_of(&arguments)) }
    }
}

/// A launch's attribute: the kernel may start before the previous one is done.
fn early_start() -> sys::CUlaunchAttribute {
    sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        pad: [0; 4],
    }
}

// SAFETY: memory from the driver is exclusive until it is freed.
unsafe impl Device for Nvidia {
    fn name(&self) -> String {
        format!("cuda:{}", self.ordinal)
    }

    fn product_name(&self) -> String {
        self.context.name().unwrap_or_else(|_| self.name())
    }

    fn allocate(&self, n_bytes: usize) -> Result<Address, DeviceError> {
        self.bind()?;
        // SAFETY: the size is not zero.
        unsafe { result::malloc_sync(n_bytes) }.map_err(|error| match error.0 {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                let free = result::mem_get_info().map_or(0, |(free, _)| free);
                DeviceError::OutOfMemory { needed: n_bytes, free }
            }
            _ => failed(error),
        })
    }

    unsafe fn free(&self, address: Address, _n_bytes: usize) {
        // A lost card has no memory to free.
        if self.bind().is_ok() && self.stream.synchronize().is_ok() {
            // SAFETY: the caller's promise; no launched kernel still uses it.
            let _ = unsafe { result::free_sync(address) };
        }
    }

    unsafe fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), DeviceError> {
        self.bind()?;
        // SAFETY: the caller's promise. The memory is not pinned, so that the bytes are read before the call returns.
        unsafe { result::memcpy_htod_async(to, bytes, self.stream.cu_stream()) }.map_err(failed)
    }

    unsafe fn download(&self, from: Address, to: &mut [u8]) -> Result<(), DeviceError> {
        self.bind()?;
        // SAFETY: the caller's promise; the bytes are used after the stream is done.
        unsafe { result::memcpy_dtoh_async(to, from, self.stream.cu_stream()) }.map_err(failed)?;
        self.stream.synchronize().map_err(failed)
    }

    unsafe fn copy(&self, from: Address, to: Address, n_bytes: usize) -> Result<(), DeviceError> {
        self.bind()?;
        // SAFETY: the caller's promise.
        unsafe { result::memcpy_dtod_async(to, from, n_bytes, self.stream.cu_stream()) }.map_err(failed)
    }

    unsafe fn clear(&self, at: Address, n_bytes: usize) -> Result<(), DeviceError> {
        self.bind()?;
        // SAFETY: the caller's promise.
        unsafe { result::memset_d8_async(at, 0, n_bytes, self.stream.cu_stream()) }.map_err(failed)
    }

    fn allocate_host(&self, n_bytes: usize) -> Result<*mut u8, DeviceError> {
        self.bind()?;
        // SAFETY: the size is not zero, and the memory is initialized below.
        unsafe {
            let start: *mut u8 = result::malloc_host(n_bytes, 0).map_err(failed)?.cast();
            start.write_bytes(0, n_bytes);
            Ok(start)
        }
    }

    unsafe fn free_host(&self, start: *mut u8, _n_bytes: usize) {
        if self.bind().is_ok() {
            // SAFETY: the caller's promise; downloads have waited for the stream.
            let _ = unsafe { result::free_host(start.cast()) };
        }
    }

    fn kernel(&self, name: &str) -> Result<Kernel, DeviceError> {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = kernels.by_name.get(name) {
            return Ok(*kernel);
        }
        self.bind()?;
        let symbol = CString::new(name).expect("a name of a kernel");
        // SAFETY: the module is loaded.
        let function = unsafe { result::module::get_function(self.module, symbol) }
            .map_err(|error| DeviceError::Failed(format!("no kernel {name}: {error}")))?;
        self.allow_shared(function).map_err(failed)?;
        let kernel = Kernel(kernels.functions.len());
        kernels.functions.push(function);
        kernels.by_name.insert(name.to_owned(), kernel);
        Ok(kernel)
    }

    unsafe fn launch(&self, kernel: Kernel, shape: Shape, arguments: &[u8]) -> Result<(), DeviceError> {
        self.bind()?;
        let [x, y, z] = shape.grid.map(|n| n as u32);
        let mut parameters = [arguments.as_ptr() as *mut c_void];
        let mut early = early_start();
        let config = sys::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: shape.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shape.shared,
            hStream: self.launch_stream(),
            attrs: &raw mut early,
            numAttrs: u32::from(self.starts_early),
        };
        // SAFETY: the caller's promise; the driver copies configuration and arguments before it returns. Every kernel
        // waits for earlier ones before it reads their results.
        unsafe {
            sys::cuLaunchKernelEx(
                &raw const config,
                self.function(kernel),
                parameters.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        }
        .result()
        .map_err(failed)
    }

    unsafe fn matmul(&self, matmul: &Matmul) -> Result<(), DeviceError> {
        let Some(handle) = &self.blas else {
            // SAFETY: the caller's promise.
            return unsafe { self.matmul_without_blas(matmul) };
        };
        self.bind()?;
        let handle = handle.lock().unwrap_or_else(PoisonError::into_inner);
        let &Matmul { weights, input, to, to_stride, n_rows, n_out, n_columns, add } = matmul;
        let (one, beta) = (1.0f32, if add { 1.0f32 } else { 0.0 });
        // cuBLAS is column-major: rows here are its columns.
        // SAFETY: the caller's promise; the factors are read before the call returns.
        let status = unsafe {
            blas::gemm_ex(
                handle.0,
                blas_sys::cublasOperation_t::CUBLAS_OP_T,
                blas_sys::cublasOperation_t::CUBLAS_OP_N,
                n_out as c_int,
                n_rows as c_int,
                n_columns as c_int,
                (&raw const one).cast(),
                weights as *const c_void,
                blas_sys::cudaDataType::CUDA_R_16BF,
                n_columns as c_int,
                input as *const c_void,
                blas_sys::cudaDataType::CUDA_R_16BF,
                n_columns as c_int,
                (&raw const beta).cast(),
                to as *mut c_void,
                blas_sys::cudaDataType::CUDA_R_32F,
                to_stride as c_int,
                blas_sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                blas_sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        };
        status.map_err(|error| DeviceError::Failed(format!("cuBLAS: {error:?}")))
    }

    fn begin_recording(&self) -> Result<(), DeviceError> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.recorder.begin_capture(mode).map_err(failed)?;
        *self.recording.lock().unwrap_or_else(PoisonError::into_inner) = Some(std::thread::current().id());
        Ok(())
    }

    fn end_recording(&self) -> Result<Option<Recording>, DeviceError> {
        *self.recording.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let flags = sys::CUgraphInstantiate_flags(0);
        let graph = self.recorder.end_capture(flags).map_err(failed)?;
        Ok(graph.map(|graph| Recording(Box::new(Graph(graph)))))
    }

    unsafe fn replay(&self, recording: &Recording) -> Result<(), DeviceError> {
        self.bind()?;
        let graph = recording.0.downcast_ref::<Graph>().expect("it was recorded here");
        // SAFETY: the graph is instantiated, and lives.
        unsafe { result::graph::launch(graph.0.cu_graph_exec(), self.stream.cu_stream()) }.map_err(failed)
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.stream.synchronize().map_err(failed)
    }

    fn memory(&self) -> Result<(usize, usize), DeviceError> {
        self.bind()?;
        result::mem_get_info().map_err(failed)
    }
}
