package conversation

import (
	"regexp"
	"slices"
	"strconv"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// EditCommand returns the command for a picture with plain words: the one named in the
// configuration, or else the default command if it makes a picture from a picture and
// words, or else the first that does; "" for none.
func EditCommand(named, usual string, commands []*workflow.Command) string {
	for _, fits := range []func(*workflow.Command) bool{
		func(c *workflow.Command) bool { return c.Name == named },
		func(c *workflow.Command) bool { return c.Name == usual && c.Edits() },
		(*workflow.Command).Edits,
	} {
		if at := slices.IndexFunc(commands, fits); at >= 0 {
			return commands[at].Name
		}
	}
	return ""
}

// numbered matches the number of a picture at the start of a message, as in "#2 in winter",
// "2: in winter" or just "2", but not in "2 foxes".
var numbered = regexp.MustCompile(`^(?:#(\d{1,3})(?:[.:,)]|\s|$)|(\d{1,3})(?:[.:)](?:\s|$)|$))\s*`)

// pick cuts the number of one of n pictures from the start of a text; 0 if there is none.
func pick(text string, n int) (number int, rest string) {
	m := numbered.FindStringSubmatch(text)
	if m == nil {
		return 0, text
	}
	number, _ = strconv.Atoi(m[1] + m[2])
	if number < 1 || number > n {
		return 0, text
	}
	return number, text[len(m[0]):]
}

// choose returns the pictures that a reply is about, as many as a command takes: all, or the
// one whose number it cuts from the words; nil if the reply does not say which one.
func choose(shown []request.Input, words string, takes int) (one []request.Input, rest string) {
	if len(shown) < 2 || len(shown) <= takes {
		return shown, words
	}
	number, rest := pick(words, len(shown))
	if number == 0 {
		return nil, words
	}
	return shown[number-1 : number], rest
}

// inputsOf returns files as inputs, and how many are left over. The first are the images and
// the next is the mask, unless those are given.
func inputsOf(files []platform.File, c *workflow.Command, given []request.Input) (inputs []request.Input, left int) {
	given = slices.Clone(given)
	for _, role := range roles(c) {
		if at := slices.IndexFunc(given, func(in request.Input) bool { return in.Role == role }); at >= 0 {
			inputs = append(inputs, given[at])
			given = slices.Delete(given, at, at+1)
			continue
		}
		if len(files) > 0 && usable(files[0]) {
			inputs = append(inputs, request.Input{Role: role, File: &files[0]})
			files = files[1:]
		}
	}
	return inputs, len(files)
}

// roles returns what the pictures of a command are for, in the order in which they come.
func roles(c *workflow.Command) []workflow.Role {
	list := slices.Repeat([]workflow.Role{workflow.Image}, c.Images())
	if c.Takes(workflow.Mask) {
		list = append(list, workflow.Mask)
	}
	return list
}

// count returns how many inputs there are for a role.
func count(inputs []request.Input, role workflow.Role) (n int) {
	for _, in := range inputs {
		if in.Role == role {
			n++
		}
	}
	return n
}

// has reports whether there is an input for a role.
func has(inputs []request.Input, role workflow.Role) bool {
	return slices.ContainsFunc(inputs, func(in request.Input) bool { return in.Role == role })
}
