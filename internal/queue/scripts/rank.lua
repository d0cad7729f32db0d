-- Ranks: places in the order of execution within a tenant, see job.RankPrefix.

-- rank_prefix is job.RankPrefix for ordinary numbers: the bits of the number as a double, arranged
-- so that their byte order is the order of the numbers.
local function rank_prefix(priority, n)
  local hi, lo = 0, 0
  if n ~= 0 then
    local mantissa, exponent = math.frexp(math.abs(n))
    local bits = (mantissa * 2 - 1) * 4503599627370496 -- 2^52
    lo = bits % 4294967296
    hi = (exponent + 1022) * 1048576 + (bits - lo) / 4294967296
  end
  if n < 0 then
    hi, lo = 2147483647 - hi, 4294967295 - lo
  else
    hi = hi + 2147483648
  end
  return string.format('%03d:%08x%08x:', 100 - priority, hi, lo)
end
