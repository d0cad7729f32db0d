package shell

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// Key is an API key as the admin endpoint shows it. Times are in Unix seconds.
type Key struct {
	Name       string   `json:"name"`
	Tenant     string   `json:"tenant"`
	Scopes     []string `json:"scopes"`
	Weight     float64  `json:"weight,omitempty"`
	Running    int      `json:"running,omitempty"`
	Waiting    int      `json:"waiting,omitempty"`
	GPUSeconds int      `json:"gpu_seconds,omitempty"`
	Rate       int      `json:"rate,omitempty"`
	Created    int64    `json:"created"`
	Expires    int64    `json:"expires,omitempty"`
	Used       int64    `json:"used,omitempty"`
	Secret     string   `json:"secret,omitempty"`
}

// keyFlags are the flags of "key add", which are the parameters of the request too.
var keyFlags = [...]struct{ name, parameter, usage string }{
	{"tenant", "tenant", "`name` of the tenant whose key it is (default: the key's name)"},
	{"scope", "scope", "what it permits: submit, read, admin, act_for_tenants; several with commas (default: submit,read)"},
	{"expires", "expires", "`time` such as 90d after which it is not valid any more (default: never)"},
	{"weight", "weight", "share of the tenant in GPU time beside others, from 0.001 to 1000"},
	{"running", "running", "how many jobs of the tenant may run at once"},
	{"waiting", "waiting", "how many of its jobs may wait"},
	{"gpu-seconds", "gpu_seconds", "GPU time that the tenant may use within 24 hours, such as 36000/day"},
	{"rate", "rate", "how many prompts it may post, such as 60/min"},
}

// addKeys adds the commands about API keys.
func (c *commands) addKeys() {
	group := &cobra.Command{
		Use: "key add|list|revoke", Short: "Make, list and revoke API keys",
		Long: `Programs identify themselves by API keys where the Caddyfile says "keys optional" or
"keys required". A key belongs to a tenant; the limits that are given with it are the
tenant's, and come before those of the Caddyfile.`,
	}
	c.groups(group)
	c.parent.AddCommand(group)
	one := func(n int) bool { return n == 1 }
	add := &cobra.Command{
		Use: "add NAME [--tenant NAME] [--scope submit,read] [--expires 90d]", Short: "Make a key and print its secret, which is shown only once",
	}
	for _, f := range keyFlags {
		add.Flags().String(f.name, "", f.usage)
	}
	add.Flags().Bool("json", false, "print the key as JSON")
	c.addTo(group, add, one, c.operator(runKeyAdd))
	list := &cobra.Command{Use: "list", Short: "List the keys, without their secrets"}
	list.Flags().Bool("json", false, "print the keys as JSON")
	c.addTo(group, list, func(n int) bool { return n == 0 }, c.operator(runKeyList))
	c.addTo(group, &cobra.Command{
		Use: "revoke NAME", Short: "Revoke a key at once; requests and sockets with it end",
	}, one, c.operator(runKeyRevoke))
}

func runKeyAdd(ctx context.Context, a *Admin, cmd *cobra.Command, args []string) error {
	query := url.Values{"name": {args[0]}}
	for _, f := range keyFlags {
		if flag := cmd.Flags().Lookup(f.name); flag.Changed {
			query.Set(f.parameter, flag.Value.String())
		}
	}
	var key Key
	if err := a.ask(ctx, http.MethodPost, "keys", query, &key); err != nil {
		return err
	}
	if asJSON(cmd) {
		return writeJSON(cmd.OutOrStdout(), key)
	}
	fmt.Fprintln(cmd.OutOrStdout(), printable(key.Secret))
	fmt.Fprintf(cmd.ErrOrStderr(), "This is the secret of the key %s of tenant %s. It is not shown again.\n", printable(key.Name), printable(key.Tenant))
	return nil
}

func runKeyRevoke(ctx context.Context, a *Admin, cmd *cobra.Command, args []string) error {
	if err := a.ask(ctx, http.MethodDelete, "keys", url.Values{"name": {args[0]}}, nil); err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), "revoked", printable(args[0]))
	return nil
}

func runKeyList(ctx context.Context, a *Admin, cmd *cobra.Command, _ []string) error {
	keys := []Key{}
	if err := a.ask(ctx, http.MethodGet, "keys", nil, &keys); err != nil {
		return err
	}
	if asJSON(cmd) {
		return writeJSON(cmd.OutOrStdout(), keys)
	}
	return showKeys(cmd.OutOrStdout(), keys, time.Now())
}

// showKeys writes a table of keys.
func showKeys(out io.Writer, keys []Key, now time.Time) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tTENANT\tSCOPE\tLIMITS\tEXPIRES\tUSED")
	for _, k := range keys {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", printable(k.Name), printable(k.Tenant), printable(strings.Join(k.Scopes, ",")), k.limits(), k.expires(now), k.used(now))
	}
	return table.Flush()
}

// limits are those that the key gives its tenant, in a few words.
func (k Key) limits() string {
	var words []string
	if k.Weight != 0 {
		words = append(words, "weight "+strconv.FormatFloat(k.Weight, 'g', -1, 64))
	}
	for _, limit := range []struct {
		word  string
		value int
		unit  string
	}{{"running", k.Running, ""}, {"waiting", k.Waiting, ""}, {"gpu-seconds", k.GPUSeconds, "/day"}, {"rate", k.Rate, "/min"}} {
		if limit.value != 0 {
			words = append(words, limit.word+" "+strconv.Itoa(limit.value)+limit.unit)
		}
	}
	if words == nil {
		return "-"
	}
	return strings.Join(words, ", ")
}

func (k Key) expires(now time.Time) string {
	switch at := time.Unix(k.Expires, 0); {
	case k.Expires == 0:
		return "never"
	case !at.After(now):
		return "expired"
	default:
		return "in " + short(at.Sub(now))
	}
}

func (k Key) used(now time.Time) string {
	if k.Used == 0 {
		return "never"
	}
	return short(now.Sub(time.Unix(k.Used, 0))) + " ago"
}
