// Package request is the life of one request, from the message that asked for
// it to the picture that answers it.
//
// Each step is written to the state before it is taken, so that a bridge that
// is killed at any moment goes on where it was:
//
//	new      stored; what the message brought along is not at the hub yet
//	ready    the graph is made; the hub may or may not have it
//	queued   the hub has it; followed until it ends
//	ended    how it ended is known; files are being delivered
//	over     everybody has been told
//
// The bridge chooses the prompt id and stores it first: to post it again is the
// same job to the hub. A file is marked as being sent before it is, and as sent
// after: one that was being sent when the bridge died, or when the platform did
// not answer, is not sent again by itself, as it may have arrived; the person is
// told so and can ask for it with a button.
package request

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// Phase is how far a request is.
type Phase string

// The phases, in order. A prompt that the hub has lost goes back to Ready.
const (
	New    Phase = "new"
	Ready  Phase = "ready"
	Queued Phase = "queued"
	Ended  Phase = "ended"
	Over   Phase = "over"
)

// Outcome is how a request ended.
type Outcome string

// The outcomes. Refused is a workflow that the hub does not take.
const (
	Done      Outcome = "done"
	Failed    Outcome = "failed"
	Cancelled Outcome = "cancelled"
	Refused   Outcome = "refused"
)

// Record is a request as it is stored. Its JSON is read by older and newer
// bridges.
type Record struct {
	ID string `json:"id"`
	// Prompt and Client are ids at the hub. A client id serves one request.
	Prompt string `json:"prompt"`
	Client string `json:"client"`

	Platform string        `json:"platform"`
	Chat     platform.Chat `json:"chat"`
	User     platform.User `json:"user"`
	Language string        `json:"language"`
	// Message is what asked, Status the bridge's message that shows how it goes.
	Message string `json:"message"`
	Status  string `json:"status,omitempty"`

	Command  string        `json:"command"`
	Args     workflow.Args `json:"args"`
	Inputs   []Input       `json:"inputs,omitempty"`
	Previews bool          `json:"previews,omitempty"`
	// Price is what was taken from the day's share in advance.
	Price int64 `json:"price,omitempty"`
	// Metered takes what the run took, in seconds, at the end instead.
	Metered bool `json:"metered,omitempty"`

	Phase   Phase           `json:"phase"`
	Graph   json.RawMessage `json:"graph,omitempty"`
	Cancel  bool            `json:"cancel,omitempty"`
	Outcome Outcome         `json:"outcome,omitempty"`
	// Reason is why it failed, in the hub's words.
	Reason  string   `json:"reason,omitempty"`
	Outputs []Output `json:"outputs,omitempty"`

	Asked time.Time `json:"asked"`
	// Took is how long the run took, in milliseconds.
	Took int64 `json:"took,omitempty"`
}

// Input is a file for the workflow: one that the person sent, or an output of
// an earlier request.
type Input struct {
	Role workflow.Role    `json:"role"`
	File *platform.File   `json:"file,omitempty"`
	From *comfyui.FileRef `json:"from,omitempty"`
	// Owner is the tenant whose output From is.
	Owner string `json:"owner,omitempty"`
	// Stored is its name at the hub, once it is there.
	Stored string `json:"stored,omitempty"`
}

// Sent is how far the delivery of a file is.
type Sent string

const (
	// Unsent: not tried.
	Unsent Sent = ""
	// Sending: tried, and perhaps not for the last time.
	Sending Sent = "sending"
	// Arrived: the platform has said so.
	Arrived Sent = "arrived"
	// Unsure: it may have arrived.
	Unsure Sent = "unsure"
	// Lost: it cannot be delivered.
	Lost Sent = "lost"
	// TooBig: larger than the platform moves.
	TooBig Sent = "too_big"
)

// Output is a file that a run made.
type Output struct {
	Ref     comfyui.FileRef `json:"ref"`
	State   Sent            `json:"state,omitempty"`
	Message string          `json:"message,omitempty"`
	Media   platform.Media  `json:"media,omitempty"`
	// Size is in bytes, 0 when unknown.
	Size int64 `json:"size,omitempty"`
	// Link is where it can be fetched, of what is too large to be sent.
	Link string `json:"link,omitempty"`
}

// Who names a user among those of all platforms. It is the tenant at the hub.
func Who(platformName, user string) string { return platformName + ":" + user }

// Tenant is who pays for the request at the hub.
func (r *Record) Tenant() string { return Who(r.Platform, r.User.ID) }

// IDOf is the request of an event: the same event always means the same
// request.
func IDOf(eventKey string) string { return uuid.NewSHA1(uuid.NameSpaceURL, []byte(eventKey)).String() }

// NewRecord fills in what does not come from the message.
func NewRecord(id string) Record {
	return Record{ID: id, Prompt: uuid.NewString(), Client: uuid.NewString(), Phase: New, Asked: time.Now()}
}

// Button verbs; a button carries its verb and the id of its request.
const (
	VerbStatus  = "st"
	VerbCancel  = "ca"
	VerbAgain   = "ag"
	VerbVary    = "va"
	VerbUpscale = "up"
	VerbFile    = "fi"
	VerbResend  = "re"
)

// ButtonData is what a button carries.
func ButtonData(verb, id string) string { return verb + ":" + id }

// Which request a message asked for, or is about, is kept under this kind of
// value for this long.
const (
	MessageKind = "message"
	MessageKeep = 48 * time.Hour
)

// MessageName names a message among those of all chats.
func MessageName(platformName, chat, message string) string {
	return platformName + "/" + chat + "/" + message
}
