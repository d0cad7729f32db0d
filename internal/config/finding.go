package config

// Level says how bad a [Finding] is.
type Level string

// The levels of findings, from good to bad.
const (
	LevelOK Level = "ok"
	// LevelNote is for what may well be intended.
	LevelNote    Level = "note"
	LevelWarning Level = "warning"
	LevelError   Level = "error"
)

// Finding is what a checkup has found out about one thing.
type Finding struct {
	Level Level `json:"level"`
	// About is the part concerned, such as "redis".
	About string `json:"about"`
	// Says is a sentence for the operator, and Do what to do about it, empty for nothing.
	Says string `json:"says"`
	Do   string `json:"do,omitempty"`
}
