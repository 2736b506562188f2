//! nvdisasm's JSON: any header, and any text in place of its functions.
#![no_main]

const HEADER: &str = r#"{"SM":{"version":{"major":9,"minor":0}},"Producer":"nvdisasm V13.5.37 Build 1"}"#;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    kbt_sass_fuzz::bounded(data, || kbt_sass_fuzz::everything(data));
    if let Ok(text) = std::str::from_utf8(data) {
        let instructions = format!("[{HEADER},[{{\"function-name\":\"k\",\"sass-instructions\":[{text}]}}]]");
        let bytes = instructions.as_bytes();
        kbt_sass_fuzz::bounded(bytes, || kbt_sass_fuzz::everything(bytes));
    }
});
