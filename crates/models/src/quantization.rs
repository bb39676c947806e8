//! Quantizations in the names of files and models: `Q4_K_M` in `Qwen3-4B-Q4_K_M.gguf` and in `qwen3:4b-q4_k_m`.

use hone_protocol::PartName;

/// Weight formats with other prefixes.
const OTHERS: [&str; 6] = ["F32", "F16", "BF16", "MXFP4", "MXFP4_MOE", "NVFP4"];

/// The quantization at the end of a file name, in capitals: after the last `-` or `.`, before `.gguf` and the number of
/// a part. It includes the makers' mark `UD-`.
pub(crate) fn of_file(name: &str) -> Option<String> {
    let name = PartName::parse(name).map_or(name, |part| part.stem).to_uppercase();
    of_end(name.strip_suffix(".GGUF").unwrap_or(&name)).map(|(_, quantization)| quantization.to_owned())
}

/// Splits the name of a model into its base name and its quantization.
pub(crate) fn of_model(name: &str) -> Option<(&str, String)> {
    let upper = name.to_uppercase();
    let (rest, quantization) = of_end(&upper)?;
    Some((name.get(..rest.len())?, quantization.to_owned()))
}

/// Whether a quantization is the requested one, in any case, with or without the makers' mark.
pub(crate) fn is(quantization: &str, asked: &str) -> bool {
    let plain = quantization.strip_prefix("UD-").unwrap_or(quantization);
    quantization.eq_ignore_ascii_case(asked) || plain.eq_ignore_ascii_case(asked)
}

/// Whether the engine supports the types of a quantization.
pub(crate) fn runs(quantization: &str) -> bool {
    let plain = quantization.strip_prefix("UD-").unwrap_or(quantization);
    !plain.starts_with("IQ1_") && !plain.starts_with("Q1_") && plain != "NVFP4"
}

fn of_end(upper: &str) -> Option<(&str, &str)> {
    let at = upper.rfind(['-', '.'])?;
    let at = if upper[..at].ends_with("-UD") { at - 3 } else { at };
    let quantization = &upper[at + 1..];
    is_quantization(quantization.strip_prefix("UD-").unwrap_or(quantization)).then_some((&upper[..at], quantization))
}

fn is_quantization(text: &str) -> bool {
    let bits = ["IQ", "TQ", "Q"].into_iter().find_map(|prefix| text.strip_prefix(prefix));
    let is_word = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    bits.is_some_and(|rest| {
        rest.starts_with(|c: char| c.is_ascii_digit()) && rest[1..].starts_with('_') && is_word(rest)
    }) || OTHERS.contains(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_name_their_quantization_at_the_end() {
        let check = |file: &str, expected: Option<&str>| assert_eq!(of_file(file).as_deref(), expected, "{file}");
        check("Qwen3-4B-Q4_K_M.gguf", Some("Q4_K_M"));
        check("SmolLM2-135M-Instruct.Q4_1.gguf", Some("Q4_1"));
        check("smollm2-360m-instruct-q8_0.gguf", Some("Q8_0"));
        check("Qwen3.6-35B-A3B-UD-Q4_K_XL.gguf", Some("UD-Q4_K_XL"));
        check("gpt-oss-20b-mxfp4.gguf", Some("MXFP4"));
        check("Big-BF16-00001-of-00003.gguf", Some("BF16"));
        check("Phi-3-mini-IQ3_XXS.gguf", Some("IQ3_XXS"));
        for file in ["model.gguf", "Qwen3-4B.gguf", "Qwen-Q4.gguf", "Llama-Quality.gguf", ".gguf", "", "é-Q"] {
            check(file, None);
        }
    }

    #[test]
    fn models_are_split() {
        assert_eq!(of_model("qwen3:4b-q8_0"), Some(("qwen3:4b", "Q8_0".to_owned())));
        assert_eq!(of_model("qwen3.6:35b-a3b-ud-q2_k_xl"), Some(("qwen3.6:35b-a3b", "UD-Q2_K_XL".to_owned())));
        assert_eq!(of_model("qwen3:4b"), None);
        assert!(is("UD-Q4_K_XL", "q4_k_xl") && is("Q8_0", "q8_0") && !is("Q8_0", "Q6_K"));
    }
}
