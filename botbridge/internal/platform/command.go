package platform

import "context"

// Command is a command that a platform can offer to its users, with a form for its
// arguments. Texts are by language, as of the bridge's own languages; "" is for all
// others.
type Command struct {
	Name  string
	About map[string]string
	// OnMessage means that it is used on a message, like a reply with the command, and
	// takes no arguments. About is then its name in that menu: a few words.
	OnMessage bool
	// Private means that its reply is only for the person who uses it.
	Private   bool
	Arguments []Argument
}

// ArgumentKind is what an argument is.
type ArgumentKind int

// The kinds of arguments.
const (
	// Words are any text.
	Words ArgumentKind = iota
	// Whole is a whole number, Fraction any number.
	Whole
	Fraction
	// Picture is a file.
	Picture
	// Switch is there or not.
	Switch
)

// Argument is one thing that a command takes.
type Argument struct {
	// Name is what the user sees, Flag what the bridge reads before the value, as in
	// "--size 768x512". Without a flag, the value stands alone; the value of a Switch is
	// its name.
	Name, Flag string
	Kind       ArgumentKind
	About      map[string]string
	Required   bool
	// Choices are all possible values, nil for any.
	Choices []string
	// Suggested means that the bridge suggests values while the argument is typed, see
	// [Suggest]. Other values are allowed.
	Suggested bool
	// Min and Max bound a number, both included.
	Min, Max float64
}

// Suggest returns values of a command's argument that match what was typed so far, the best
// first. It is called at every keystroke and must not block.
type Suggest func(ctx context.Context, command, argument, typed string) []string
