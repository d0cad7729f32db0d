package platform

import "context"

// Form is a few texts to fill in. What is filled in comes back as a Pressed event with
// Event.Filled.
type Form struct {
	Title string
	// Data is that of the event that brings the form back: at most 64 bytes.
	Data   string
	Fields []Field
}

// Field is one text of a form.
type Field struct {
	// Name is its key in Event.Filled.
	Name, Label string
	// Value is what is in it already. A platform leaves out one that is too long for it:
	// half of a text would be taken for the whole.
	Value string
	// Long means that it has several lines, Required that it must not stay empty.
	Long, Required bool
}

// Forms returns the form that an event opens, nil if it opens none and is to be handled. A
// platform with forms (see Limits.Forms) calls it while the user waits for the answer: ctx
// ends soon, and a form without values is better than none.
type Forms func(ctx context.Context, e Event) *Form
