// Quantises groups read from standard input with every form of kbt/quant.cuh and kbt/quant_published.cuh. A line: form
// (4 is two-level, -1 the fixed offset), group maximum, c, bias and sixteen elements, as f32 bits in hex. Printed: element
// codes, scale code, weight, sum and sixteen values; for the fixed offset codes and sum.
// With any argument: the offsets.
#include <kbt/quant_published.cuh>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace q = kbt::quant;

static void print(const q::GroupScale& scale, const uint8_t (&codes)[8], q::GroupSum first, q::GroupSum second,
                  const float (&values)[16]) {
  if (memcmp(&first, &second, sizeof first) != 0) {
    fprintf(stderr, "the sums of codes and values differ\n");
    exit(1);
  }
  for (int i = 0; i < 16; ++i) {
    const uint8_t code = codes[i / 2] >> (i % 2 * 4) & 15;
    printf("%x", code);
    // Codes and values are two ways to the same numbers.
    if (q::e2m1_decode(code) * scale.rounded != values[i]) {
      fprintf(stderr, "code and value differ\n");
      exit(1);
    }
  }
  printf(" %02x %08x %08x", q::e4m3_encode(scale.unrounded), q::bits(second.weight), q::bits(second.psum));
  for (float value : values) printf(" %08x", q::bits(value));
  printf("\n");
}

template <q::Form F>
static void run(float group_max, q::Row row, const float (&elements)[16]) {
  const q::GroupScale scale = q::group_scale<F>(group_max, row);
  uint8_t codes[8];
  const q::GroupSum first = q::quantize_p_codes<F>(elements, codes, scale, row);
  float values[16];
  memcpy(values, elements, sizeof values);
  const q::GroupSum second = q::quantize_p<F>(values, scale, row);
  print(scale, codes, first, second, values);
}

static void two_level(float group_max, q::Row row, const float (&scores)[16]) {
  const q::GroupScale scale = q::two_level_scale(group_max, row);
  uint8_t codes[8];
  const q::GroupSum first = q::two_level_codes(scores, codes, scale, row);
  float values[16];
  memcpy(values, scores, sizeof values);
  const q::GroupSum second = q::two_level(values, scale, row);
  print(scale, codes, first, second, values);
}

static void fixed_offset(q::Row row, const float (&scores)[16]) {
  uint8_t codes[16];
  const float sum = q::fixed_offset_codes(scores, codes, row);
  for (uint8_t code : codes) printf("%02x", code);
  printf(" %08x\n", q::bits(sum));
}

int main(int argc, char**) {
  if (argc > 1) {
    printf("%08x %08x %08x\n", q::bits(q::kOffsetUnit), q::bits(q::kOffsetFull), q::bits(q::kOffsetFp8));
    return 0;
  }
  int form;
  while (scanf("%d", &form) == 1) {
    uint32_t word[19];
    for (uint32_t& w : word)
      if (scanf("%x", &w) != 1) return 1;
    const q::Row row = {q::from_bits(word[1]), q::from_bits(word[2])};
    float elements[16];
    for (int i = 0; i < 16; ++i) elements[i] = q::from_bits(word[3 + i]);
    const float group_max = q::from_bits(word[0]);
    if (form == -1) {
      fixed_offset(row, elements);
      continue;
    }
    if (form == 4) {
      two_level(group_max, row, elements);
      continue;
    }
    switch ((q::Form)form) {
      case q::Form::Linear: run<q::Form::Linear>(group_max, row, elements); break;
      case q::Form::LinearRcp: run<q::Form::LinearRcp>(group_max, row, elements); break;
      case q::Form::Log2: run<q::Form::Log2>(group_max, row, elements); break;
      case q::Form::Log2Fused: run<q::Form::Log2Fused>(group_max, row, elements); break;
    }
  }
  return 0;
}
