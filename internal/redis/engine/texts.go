package engine

import (
	"math"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// texts are functions that the prelude of package redis has in Lua, too. Scripts call
// them for nearly each command, and in Lua they are some 40 % of a script's time.
func (i *interpreter) texts() map[string]lua.LGFunction {
	return map[string]lua.LGFunction{"key": i.key, "pack": pack, "int": whole}
}

// key is the script's first key, and after it the arguments with colons between them.
func (i *interpreter) key(l *lua.LState) int {
	var b strings.Builder
	b.WriteString(i.prefix)
	for n := 1; n <= l.GetTop(); n++ {
		if n > 1 {
			b.WriteByte(':')
		}
		b.WriteString(text(l, n))
	}
	l.Push(lua.LString(b.String()))
	return 1
}

// pack puts strings of any bytes into one, each after its length.
func pack(l *lua.LState) int {
	var b strings.Builder
	for n := 1; n <= l.GetTop(); n++ {
		part := l.CheckString(n)
		b.WriteString(strconv.Itoa(len(part)))
		b.WriteByte(':')
		b.WriteString(part)
	}
	l.Push(lua.LString(b.String()))
	return 1
}

// whole formats a number without an exponent or a fraction, as %.0f does.
func whole(l *lua.LState) int {
	f := float64(l.CheckNumber(1))
	const exact = 1 << 53
	if n := int64(f); f != 0 && math.Abs(f) < exact && float64(n) == f { // the usual case: far less work
		l.Push(lua.LString(strconv.FormatInt(n, 10)))
	} else {
		l.Push(lua.LString(strconv.FormatFloat(f, 'f', 0, 64)))
	}
	return 1
}

// text is an argument that is a string or a number.
func text(l *lua.LState, n int) string {
	v := l.Get(n)
	if !lua.LVCanConvToString(v) {
		l.ArgError(n, "a "+v.Type().String()+" is no part of a key")
	}
	return lua.LVAsString(v)
}
