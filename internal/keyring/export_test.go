package keyring

// Quick gives options with which a secret is derived in no time.
func Quick(o Options) Options {
	o.iterations = 10
	return o
}
