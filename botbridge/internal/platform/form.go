package platform

import "context"

// Form is a few texts to fill in. They come back in a Pressed event, as Event.Filled.
type Form struct {
	Title string
	// Data is the data of the event that brings the texts back: at most 64 bytes.
	Data   string
	Fields []Field
}

// Field is one text of a form.
type Field struct {
	// Name is its key in Event.Filled.
	Name, Label string
	// Value is the initial text. If it is too long for the platform it is left out, as half
	// a text could pass for the whole.
	Value string
	// Long means that it can have several lines, Required that it must not be empty.
	Long, Required bool
}

// Forms returns the form that an event opens, nil if the event is just to be handled. A
// platform with forms (see Limits.Forms) calls it while the user waits: ctx ends soon, and
// an empty form is better than none.
type Forms func(ctx context.Context, e Event) *Form
