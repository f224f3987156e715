"""Why a run ended as it did: branches with draws made anew, the moments that decided, and the shares of the sources of luck."""
