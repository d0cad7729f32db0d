// Package request handles one request, from the message that asked for it to the
// picture that answers it.
//
// Each step is recorded in the state before it is taken, so that a bridge that is
// killed at any moment continues where it was:
//
//	new      stored; the message's files are not at the hub yet
//	ready    the graph is built; the hub may or may not have it
//	queued   the hub has it; followed until it ends
//	ended    how it ended is known; files are being delivered
//	over     everybody has been told
//
// The bridge chooses the prompt id and stores it first: posting it again is the
// same job to the hub. A file is marked as being sent before it is sent, and as
// sent after. A file that was being sent when the bridge died, or when the platform
// did not answer, is looked for before it is sent again, because it may have arrived.
// Where nobody can look, the user is told so and can request it with a button. A
// platform that knows posts by their ids gets it again.
package request

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/botbridge/internal/outbox"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// Phase is how far a request is.
type Phase string

// The phases, in order. A prompt that the hub has lost returns to Ready.
const (
	New    Phase = "new"
	Ready  Phase = "ready"
	Queued Phase = "queued"
	Ended  Phase = "ended"
	Over   Phase = "over"
)

// Outcome is how a request ended.
type Outcome string

// The outcomes. Refused is a workflow that the hub does not accept.
const (
	Done      Outcome = "done"
	Failed    Outcome = "failed"
	Cancelled Outcome = "cancelled"
	Refused   Outcome = "refused"
)

// What a request whose run is Done came to if not every file has arrived. Records do
// not have them; they are counted.
const (
	// InDoubt: some files may not have arrived.
	InDoubt Outcome = "in_doubt"
	// Hidden: moderation does not let some files be shown.
	Hidden Outcome = "hidden"
	// Undelivered: some files could not be delivered.
	Undelivered Outcome = "undelivered"
)

// Record is a request as it is stored. Older and newer bridges read its JSON.
type Record struct {
	ID string `json:"id"`
	// Prompt and Client are ids at the hub. A client id is used for one request.
	Prompt string `json:"prompt"`
	Client string `json:"client"`

	Platform string        `json:"platform"`
	Chat     platform.Chat `json:"chat"`
	User     platform.User `json:"user"`
	Language string        `json:"language"`
	// Message is the user's message, Status the bridge's message that shows the
	// progress.
	Message string `json:"message"`
	// Said is a digest of that message's text, Answers the question that it answered, as
	// package conversation stores it.
	Said    string          `json:"said,omitempty"`
	Answers json.RawMessage `json:"answers,omitempty"`
	Status  string          `json:"status,omitempty"`
	// Tellings counts the status messages that were being sent when something broke: each
	// may stand in the chat. The one in Status is among them. Told is where to look for the
	// last one.
	Tellings int    `json:"tellings,omitempty"`
	Told     string `json:"told,omitempty"`

	Command string        `json:"command"`
	Args    workflow.Args `json:"args"`
	// Shows is the prompt of the picture that this one is made from, if the command takes
	// no words.
	Shows    string  `json:"shows,omitempty"`
	Inputs   []Input `json:"inputs,omitempty"`
	Previews bool    `json:"previews,omitempty"`
	// Price is what was charged to the daily share in advance.
	Price int64 `json:"price,omitempty"`
	// Metered means that the run's time, in seconds, is charged at the end instead.
	Metered bool `json:"metered,omitempty"`
	// Counted is the group whose count it goes into as well, "" for none.
	Counted string `json:"counted,omitempty"`
	// Cover means that its pictures are behind a spoiler, because its group or its author
	// wants that.
	Cover bool `json:"cover,omitempty"`
	// Charge names the payment for it, "" for none, and Paid the amount. It is refunded if
	// nothing is shown for it.
	Charge string `json:"charge,omitempty"`
	Paid   int64  `json:"paid,omitempty"`

	Phase   Phase           `json:"phase"`
	Graph   json.RawMessage `json:"graph,omitempty"`
	Cancel  bool            `json:"cancel,omitempty"`
	Outcome Outcome         `json:"outcome,omitempty"`
	// Reason is why it was refused, for the user, or why it failed, in the hub's words.
	Reason  string   `json:"reason,omitempty"`
	Outputs []Output `json:"outputs,omitempty"`
	// Barred means that the platform does not let the bridge send files there.
	Barred bool `json:"barred,omitempty"`
	// Texts are the strings that the run made.
	Texts []Text `json:"texts,omitempty"`
	// Copies are later messages that show some of it, the last maxCopies at most.
	Copies []string `json:"copies,omitempty"`
	// Grid means that the outputs are shown as one numbered picture, NoGrid that this
	// was not possible.
	Grid   bool `json:"grid,omitempty"`
	NoGrid bool `json:"no_grid,omitempty"`

	Asked time.Time `json:"asked"`
	// Took is how long the run took, in milliseconds.
	Took int64 `json:"took,omitempty"`
	// Instance is where it ran, "" if the hub did not say.
	Instance string `json:"instance,omitempty"`
}

// Input is a file for the workflow: one that the user sent, or an output of an
// earlier request.
type Input struct {
	Role workflow.Role    `json:"role"`
	File *platform.File   `json:"file,omitempty"`
	From *comfyui.FileRef `json:"from,omitempty"`
	// Owner is the tenant that owns the output in From.
	Owner string `json:"owner,omitempty"`
	// Cover means that it was hidden behind a spoiler by whoever asked for it: what is made
	// from it is, too.
	Cover bool `json:"cover,omitempty"`
	// Stored is its name at the hub, once it is there.
	Stored string `json:"stored,omitempty"`
}

// Sent is the state of a file's delivery.
type Sent string

const (
	// Unsent: not tried.
	Unsent Sent = ""
	// Sending: tried, and perhaps to be tried again.
	Sending Sent = "sending"
	// Arrived: confirmed by the platform.
	Arrived Sent = "arrived"
	// Unsure: it may have arrived.
	Unsure Sent = "unsure"
	// Lost: it cannot be delivered.
	Lost Sent = "lost"
	// Kept: withheld by moderation.
	Kept Sent = "kept"
	// TooBig: larger than the platform allows.
	TooBig Sent = "too_big"
)

// Output is a file that a run made.
type Output struct {
	Ref   comfyui.FileRef `json:"ref"`
	State Sent            `json:"state,omitempty"`
	// Tried is when sending it began, in Unix seconds, and After the message after which it is
	// to be looked for if it may have arrived.
	Tried   int64          `json:"tried,omitempty"`
	After   string         `json:"after,omitempty"`
	Message string         `json:"message,omitempty"`
	Media   platform.Media `json:"media,omitempty"`
	// Size is in bytes, 0 when unknown.
	Size int64 `json:"size,omitempty"`
	// Width, Height and Length are those of a video, 0 when unknown.
	Width  int           `json:"width,omitempty"`
	Height int           `json:"height,omitempty"`
	Length time.Duration `json:"length,omitempty"`
	// Link is a link to a file that is too large to send.
	Link string `json:"link,omitempty"`
	// Verdict is what moderation says about it, and Reason why.
	Verdict Verdict `json:"verdict,omitempty"`
	Reason  string  `json:"reason,omitempty"`
}

// Text is a string that a run made. It is dropped once it has been sent.
type Text struct {
	Text string `json:"text,omitempty"`
	// Told means that it has been sent, or never can be; Message is where.
	Told    bool   `json:"told,omitempty"`
	Message string `json:"message,omitempty"`
	// Lost means that it could not be sent.
	Lost bool `json:"lost,omitempty"`
}

// tried reports whether sending the file began at most so long ago; 0 is any time.
func (o *Output) tried(within time.Duration) bool {
	return within == 0 || time.Since(time.Unix(o.Tried, 0)) < within
}

// since is when sending the file began, zero if it is not known to have begun.
func (o *Output) since() time.Time {
	if o.Tried == 0 {
		return time.Time{}
	}
	return time.Unix(o.Tried, 0)
}

// doubt marks the files that were being sent when another process stopped driving the
// request: they may have arrived. p is nil if the platform is not configured.
func (r *Record) doubt(p platform.Platform) {
	for i := range r.Outputs {
		out := &r.Outputs[i]
		if out.State != Sending {
			continue
		}
		out.State = Unsure
		if p != nil && (out.After != "" && outbox.Finds(p) || p.Limits().KnowsPosts && (outbox.Recalls(p) || out.tried(p.Limits().KnowsPostsFor))) {
			out.State = Unsent
		}
	}
}

// Files returns the names of the inputs at the hub, of those that are there.
func (r *Record) Files() (files workflow.Files) {
	for _, in := range r.Inputs {
		if in.Role == workflow.Mask {
			files.Mask = in.Stored
		} else {
			files.Images = append(files.Images, in.Stored)
		}
	}
	return files
}

// Who names a user across all platforms. It is the tenant at the hub.
func Who(platformName, user string) string { return platformName + ":" + user }

// Tenant returns the tenant that pays for the request at the hub.
func (r *Record) Tenant() string { return Who(r.Platform, r.User.ID) }

// Words returns the prompt of the result, "" if there is none.
func (r *Record) Words() string { return cmp.Or(r.Args.Prompt, r.Shows) }

// IDOf returns the id of the request of an event: the same event always means the
// same request.
func IDOf(eventKey string) string { return uuid.NewSHA1(uuid.NameSpaceURL, []byte(eventKey)).String() }

// NewRecord sets what does not come from the message.
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
	// VerbPick and VerbVaryOne are followed by the number of a picture, from 1.
	VerbPick    = "u"
	VerbVaryOne = "v"
	// VerbMore opens the menu of a picture, whose buttons have the verbs below.
	VerbMore     = "mo"
	VerbWorkflow = "wf"
	VerbBack     = "bk"
	// VerbDelete asks for confirmation, and VerbDeleteNow deletes.
	VerbDelete    = "de"
	VerbDeleteNow = "dn"
	// VerbStar, VerbSubtle and VerbStrong are followed by the number of a picture, from 1;
	// 0 asks which one.
	VerbStar   = "f"
	VerbSubtle = "w"
	VerbStrong = "x"
	VerbRemix  = "rx"
	// VerbStyles asks which style, VerbStyle is followed by its name.
	VerbStyles = "sy"
	VerbStyle  = "y."
)

// ButtonData returns the data of a button.
func ButtonData(verb, id string) string { return verb + ":" + id }

// The kinds of values that record which request a message asked for or is about,
// and how long they are kept.
const (
	MessageKind = "message"
	MessageKeep = 48 * time.Hour
	// PictureKeep is how long that of a picture is kept: as long as its request.
	PictureKeep = 7 * 24 * time.Hour
)

// MessageName names a message across all chats.
func MessageName(platformName, chat, message string) string {
	return platformName + "/" + chat + "/" + message
}
