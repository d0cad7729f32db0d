-- Bands of jobs, the highest first: interactive, normal, bulk. A rank begins with the mark of its
-- band, so that it sorts before all lower ones. The normal band has no mark, so its jobs look as
-- they do in versions without bands.
local BANDS = {'+', '', '~'}

-- NINE is how many jobs of higher bands may be given out before one of a lower one.
local NINE = 9

-- RANKS are the first rank of each band and the first rank after it.
local RANKS = {['+'] = {'[+0', '[+:'}, [''] = {'[0', '[:'}, ['~'] = {'[~', '+'}}

-- band_of returns the mark of a rank's band.
local function band_of(rank)
  local mark = string.sub(rank, 1, 1)
  if mark == '+' or mark == '~' then
    return mark
  end
  return ''
end

-- passed_over returns how many jobs of higher bands were given out since the last one of a band
-- while it had jobs waiting.
local function passed_over(band)
  return tonumber(redis.call('HGET', key('q', 'counters'), 'passed' .. band) or '0')
end

-- pass_over notes that a job is given out.
local function pass_over(j)
  local own, lower = band_of(j.rank), false
  for _, band in ipairs(BANDS) do
    if band == own then
      if band ~= BANDS[1] and passed_over(band) > 0 then
        write('HDEL', key('q', 'counters'), 'passed' .. band)
      end
      lower = true
    elseif lower and redis.call('EXISTS', key('q', 'tenants' .. band)) == 1 then
      write('HINCRBY', key('q', 'counters'), 'passed' .. band, '1')
    end
  end
end

-- of_others returns how many jobs of other bands will be given out before one that has n of its own
-- band before it. waiting keeps how many wait in each band.
local function of_others(band, n, waiting)
  local function waits(b)
    waiting[b] = waiting[b] or redis.call('ZLEXCOUNT', key('q', 'waiting'), RANKS[b][1], RANKS[b][2])
    return waiting[b]
  end
  local before, higher, lower = n, 0, false
  for _, b in ipairs(BANDS) do
    if b == band then
      if higher > 0 then
        before = n + math.min(higher, NINE * (n + 1) - math.min(passed_over(band), NINE))
      end
      lower = true
    elseif not lower then
      higher = higher + waits(b)
    elseif waits(b) > 0 then
      before = before + math.min(waits(b), math.floor((before + math.min(passed_over(b), NINE)) / NINE))
    end
  end
  return before - n
end
