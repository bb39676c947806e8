//! The decode formulas, checked against numbers computed by ggml's own.

use hone_kernels::{TensorType, dequantize};

/// Random blocks with a scale of one (MXFP4: one fourth to two), as `dequantize_row_*` of llama.cpp's `ggml-quants.c`
/// decodes them; the package `gguf` 0.19.0 gives the same numbers. All numbers are multiplied by eight, which makes
/// them integers: the first twelve, and a hash of all.
#[test]
fn random_blocks_decode_as_ggml_decodes_them() {
    #[rustfmt::skip]
    let expected: [(TensorType, [i32; 12], u64); 9] = [
        (TensorType::IQ4_XS, [72, -1584, -7488, 6408, -9144, 1800, 72, 2736, -4680, -7488, 6408, 72], 0x025ddfae9d66c5ae),
        (TensorType::IQ2_XXS, [-152, 152, -152, 817, 152, -475, 475, -152, -475, -152, 152, -475], 0xbef4fe79914ee192),
        (TensorType::IQ2_XS, [-56, 175, -56, 175, 301, 56, 175, 175, 56, 56, 56, 301], 0xe53729d4d4260f81),
        (TensorType::IQ2_S, [-232, -725, -725, 232, -1247, 232, 232, 1247, 725, 725, -1247, -232], 0xa2993fab2cdcf9fe),
        (TensorType::IQ3_XXS, [-2024, -184, 2392, 552, -2024, -2852, -184, -184, -2392, -2392, -920, 1656], 0x30e02b682facd953),
        (TensorType::IQ3_S, [248, -1240, -248, -2232, 1736, 2728, 2728, 1240, -2232, -2232, 3224, 744], 0x3e83e734291ab907),
        (TensorType::TQ1_0, [8, 0, 0, -8, 8, 0, 0, 0, 0, 0, 0, 8], 0xb8dbd374f4adc87e),
        (TensorType::TQ2_0, [0, 16, 8, 16, 0, -8, 0, 0, -8, 8, 0, 8], 0x3f0121bd24b7bb7e),
        (TensorType::MXFP4, [24, -16, -6, -2, 0, 12, 12, 0, 16, 2, -16, 0], 0x080193cf41696662),
    ];
    for (tensor_type, first, hash) in expected {
        let blocks = random_blocks(tensor_type, if cfg!(miri) { 1 } else { 300 });
        let mut weights = vec![0.0; blocks.len() / tensor_type.block_bytes() * tensor_type.block_elements()];
        dequantize(tensor_type, &blocks, &mut weights);
        let integers: Vec<i32> = weights.iter().map(|weight| (8.0 * weight) as i32).collect();
        assert_eq!(integers[..12], first, "{tensor_type}");
        assert!(cfg!(miri) || fnv(&integers) == hash, "{tensor_type}: {:#x} and not {hash:#x}", fnv(&integers));
    }
}

fn random_blocks(tensor_type: TensorType, n_blocks: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut blocks = Vec::new();
    for block in 0..n_blocks {
        let start = blocks.len();
        blocks.extend((0..tensor_type.block_bytes()).map(|_| splitmix(&mut state) as u8));
        let scale_at = match tensor_type {
            TensorType::MXFP4 => {
                blocks[start] = 126 + (block % 4) as u8;
                continue;
            }
            TensorType::TQ1_0 => 52,
            TensorType::TQ2_0 => 64,
            _ => 0,
        };
        blocks[start + scale_at..][..2].copy_from_slice(&0x3c00u16.to_le_bytes());
    }
    blocks
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// FNV-1a over the bytes.
fn fnv(integers: &[i32]) -> u64 {
    let bytes = integers.iter().flat_map(|integer| integer.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
