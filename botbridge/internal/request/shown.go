package request

// PictureKind is the kind of the records of which outputs a message shows, by MessageName,
// for people who reply to a picture. It is separate from MessageKind, in which older
// bridges expect only an id.
const PictureKind = "picture"

// Shown is which pictures of a request one of the bridge's messages shows. Older and newer
// bridges read its JSON.
type Shown struct {
	Request string `json:"request"`
	// Outputs are indices of outputs.
	Outputs []int `json:"outputs"`
}
