package redis

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const testLibrary = `-- A comment that says used_by_none().
local ONE, TWO = 1, 2

local LIST = {
  ['a'] = {'x'},
}

-- first uses nothing.
local function first(s)
  return s .. '-- not a comment' -- third()
end

local function second()
  return first("third(") .. LIST.ONE
end

local function third()
  return second()..TWO
end

local counter
local function count()
  counter = (counter or 0) + 1
  return counter
end

local function used_by_none()
  return third()
end
`

func TestPruned(t *testing.T) {
	t.Parallel()
	const (
		numbers = "local ONE, TWO = 1, 2\n"
		list    = "local LIST = {\n  ['a'] = {'x'},\n}\n"
		first   = "local function first(s)\n  return s .. '-- not a comment' -- third()\nend\n"
		second  = "local function second()\n  return first(\"third(\") .. LIST.ONE\nend\n"
		third   = "local function third()\n  return second()..TWO\nend\n"
		count   = "local counter\nlocal function count()\n  counter = (counter or 0) + 1\n  return counter\nend\n"
	)
	for body, want := range map[string]string{
		"return {}":                             "",
		"return {first('x')}":                   first,
		"return {second()}":                     list + first + second,
		"return {third()}":                      numbers + list + first + second + third,
		"return {count()}":                      count,
		"return {ARGV[1]..TWO}":                 numbers,
		"-- count()\nreturn {x.count, 'TWO'}":   "",
		`return {"\"first" .. ONE .. 'second'}`: numbers,
		"local first = 1\nreturn {first}":       first, // one too many does no harm
	} {
		require.Equal(t, want, pruned(body, testLibrary), "%s", body)
	}
	require.Equal(t, count+"count()\n", pruned("return {}", testLibrary, "count()\n"), "what is no definition stays, with what it uses")
	// A use before the definition is a global of that name.
	require.Equal(t, "local function b() return a() end\n", pruned("b()", "local function b() return a() end\nlocal function a() end\n"))
}

func TestTooOld(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{"6.2.14": true, "5.0.7": true, "7.0.15": false, "7.2.4": false, "8.0.2": false, "10.0.0": false, "": false, "df-v1": false} {
		require.Equal(t, want, tooOld(version), version)
	}
}
